"""Fuzz targets by name. A target takes one input after the other, and raises if one fails."""

from __future__ import annotations

import random
import tempfile
import time
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Protocol

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
            data = changed(rng, rng.choice(known), self.words, known)
            self.one(data[:LONGEST])

        return step


def _wire() -> Target:
    from tests.fuzz.wire import Wire

    return Wire()


def _sequences() -> Target:
    from tests.fuzz.sequence_files import SequenceFiles

    return SequenceFiles()


def _config() -> Target:
    from tests.fuzz.sequence_files import ConfigFiles

    return ConfigFiles()


def _journal() -> Target:
    from tests.fuzz.sequence_files import JournalFiles

    return JournalFiles()


def _index() -> Target:
    from tests.fuzz.index_files import IndexFiles

    return IndexFiles()


TARGETS: dict[str, Callable[[], Target]] = {
    "wire": _wire,
    "sequences": _sequences,
    "config": _config,
    "journal": _journal,
    "index": _index,
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


FOLDER = Path(__file__).parents[1] / "data" / "fuzz"


def kept(target: str) -> list[bytes]:
    """The inputs of a target."""
    path = FOLDER / f"{target}.txt"
    return [b64decode(line) for line in path.read_text().split()] if path.exists() else []


def save_failure(target: str, seed: int, inputs: Sequence[bytes]) -> Path:
    """Write the inputs that lead to a failure from a seed on, for ``--replay``."""
    place = Path(tempfile.mkdtemp(prefix=f"fuzz-{target}-")) / "inputs"
    lines = [str(seed), *(b64encode(data).decode() for data in inputs)]
    place.write_text("".join(f"{line}\n" for line in lines))
    return place


def saved_failure(path: str) -> tuple[int, list[bytes]]:
    """The seed and the inputs of such a file."""
    seed, *lines = Path(path).read_text().split()
    return int(seed), [b64decode(line) for line in lines]


_AT_ONCE = 64


class Failed(Exception):
    """An input was handled wrongly. inputs: those that lead to the failure from ``seed`` on."""

    def __init__(self, seed: int, inputs: list[bytes]) -> None:
        self.seed, self.inputs = seed, inputs
        super().__init__(f"the last of {len(inputs)} inputs, from seed {seed} on")


def fuzz(name: str, *, seconds: float = 0, runs: int = 0, seed: int = 1) -> Target:
    """Make inputs for this long, or this many; returns the target that took them, or Failed."""
    target = TARGETS[name]()
    try:
        return _fuzzed(target, name, seconds, runs, seed)
    finally:
        target.close()


def _fuzzed(target: Target, name: str, seconds: float, runs: int, seed: int) -> Target:
    target.begin(seed << 32)
    step = target.maker(kept(name))
    rng = random.Random(seed)
    end = time.monotonic() + seconds if seconds else float("inf")
    done = 0
    try:
        while (not runs or done < runs) and time.monotonic() < end:
            for _ in range(min(_AT_ONCE, runs - done) if runs else _AT_ONCE):
                step(rng)
                done += 1
        target.finish()
    except Exception as error:
        raise Failed(target.seed, target.left()) from error
    return target


def changed(
    rng: random.Random, data: bytes, words: Sequence[bytes], others: Sequence[bytes]
) -> bytes:
    """A mutated input. others: inputs to join it with."""
    made = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 3, 6))):
        size = len(made)
        at = rng.randrange(size + 1)
        match int(rng.random() * 8):
            case 0 if size:
                made[at % size] ^= 1 << rng.randrange(8)
            case 1 if size:
                made[at % size] = rng.randrange(256)
            case 2:
                del made[at : at + rng.choice((1, 2, 8, 40, size))]
            case 3 | 4:
                made[at:at] = rng.choice(words)
            case 5:
                made[at:at] = made[at : at + rng.choice((1, 8, 100))]
            case 6:
                other = rng.choice(others)
                made[at:] = other[rng.randrange(len(other) + 1) :]
            case 7:
                word = rng.choice(words)
                made[at : at + len(word)] = word
    return bytes(made)
