"""Fuzz targets by name. A target takes one input after the other, and raises if one fails."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Protocol

from tests.fuzz import byte_mutation
from tests.fuzz.corpus import kept

LONGEST = 1 << 14
"""The most bytes of a generated input."""


class Target(Protocol):
    """A target. became: the number of inputs by outcome. seed: that of the inputs in ``left``."""

    became: Counter[str]
    seed: int

    def begin(self, seed: int) -> None:
        """Begin again, with all randomness from this seed."""

    def one(self, data: bytes) -> None:
        """Take an input; raises if it is handled wrongly."""

    def finish(self) -> None:
        """Check what can only be checked at the end."""

    def close(self) -> None:
        """Remove the target's files, and close what is open."""

    def left(self) -> list[bytes]:
        """The inputs that reproduce the last failure, after ``begin`` with ``seed``."""

    def seeds(self) -> list[bytes]:
        """Inputs to begin with."""

    def maker(self, corpus: Sequence[bytes]) -> Callable[[random.Random], None]:
        """A function that makes and takes the next input."""


class OfBytes:
    """A target whose inputs are independent of each other.

    words: for mutations. folder: its files.
    """

    words: Sequence[bytes] = (b"\0",)
    folder: tempfile.TemporaryDirectory[str] | None = None

    def __init__(self) -> None:
        self.became = Counter[str]()
        self.seed = 0
        self._last = b""

    def begin(self, seed: int) -> None:
        """Nothing depends on it."""
        self.seed = seed

    def one(self, data: bytes) -> None:
        """Take an input."""
        self._last = data
        self.became[self.take(data)] += 1

    def take(self, data: bytes) -> str:
        """Handle an input; returns its outcome."""
        raise NotImplementedError

    def finish(self) -> None:
        """Nothing is left to check."""

    def close(self) -> None:
        """Remove its folder."""
        if self.folder is not None:
            self.folder.cleanup()

    def left(self) -> list[bytes]:
        """The input that failed."""
        return [self._last]

    def seeds(self) -> list[bytes]:
        """Inputs to begin with."""
        raise NotImplementedError

    def maker(self, corpus: Sequence[bytes]) -> Callable[[random.Random], None]:
        """Makes mutations of known inputs."""
        known = [*self.seeds(), *corpus]

        def step(rng: random.Random) -> None:
            data = byte_mutation.changed(rng, rng.choice(known), self.words, known)
            self.one(data[:LONGEST])

        return step


def _wire() -> Target:
    from tests.fuzz.wire import Wire

    return Wire()


def _sequences() -> Target:
    from tests.fuzz.sequence_files import SequenceFiles

    return SequenceFiles()


def _config() -> Target:
    from tests.fuzz.config_files import ConfigFiles

    return ConfigFiles()


def _journal() -> Target:
    from tests.fuzz.journal_files import JournalFiles

    return JournalFiles()


TARGETS: dict[str, Callable[[], Target]] = {
    "wire": _wire,
    "sequences": _sequences,
    "config": _config,
    "journal": _journal,
}


def replay(name: str, inputs: Sequence[bytes], seed: int = 0) -> Target:
    """A target that has taken these inputs."""
    target = TARGETS[name]()
    with closing(target):
        target.begin(seed)
        for data in inputs:
            target.one(data)
        target.finish()
    return target


def replay_kept(name: str) -> Target:
    """A target that has taken its seeds and its corpus."""
    with closing(TARGETS[name]()) as target:
        seeds = target.seeds()
    return replay(name, [*seeds, *kept(name)])
