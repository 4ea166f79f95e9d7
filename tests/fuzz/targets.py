"""What is fuzzed, by name. A target takes one input after the other, and fails by an exception."""

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
"""Bytes of an input that is made."""


class Target(Protocol):
    """became: what became of how many inputs. seed: where what ``left`` returns begins."""

    became: Counter[str]
    seed: int

    def begin(self, seed: int) -> None:
        """Begin anew; what chance decides is of this seed."""

    def one(self, data: bytes) -> None:
        """Take an input; an exception if it is not treated as it should be."""

    def finish(self) -> None:
        """Check what can be checked in the end only."""

    def close(self) -> None:
        """Remove what the target has on disk, and close what is open."""

    def left(self) -> list[bytes]:
        """What leads to the last failure again, from ``begin`` with ``seed``."""

    def seeds(self) -> list[bytes]:
        """Inputs to begin with."""

    def maker(self, corpus: Sequence[bytes]) -> Callable[[random.Random], None]:
        """What makes and takes the next input."""


class OfBytes:
    """A target whose inputs are independent of each other.

    words: for mutations. folder: what it has on disk.
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
        """What becomes of an input."""
        raise NotImplementedError

    def finish(self) -> None:
        """There is nothing left."""

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
        """Changes of what is known."""
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


# each imports what it needs, so that a driver can look at that alone
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
