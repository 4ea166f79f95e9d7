"""Flip every bit of a killed journal's index, and delete its files: nothing may be lost.

    python -m tests.faults.flips [--random N] [--seed N]

A small journal in memory, or with ``--random`` so many random bits of a larger one on disk.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

from streamer.journal.data_files import Sizes
from streamer.journal.record import Begun, JournalError
from streamer.journal.store import Journal
from tests.streamer.journal.kit import IDENTITY, SMALL, keyed

INDEX = "index.sqlite", "index.sqlite-wal", "index.sqlite-shm"


class Killed:
    """What a killed owner left in a folder, whose files may be changed."""

    def __init__(self, folder: Path, count: int, *, size: int, sizes: Sizes) -> None:
        self.folder, self._sizes = folder, sizes
        with closing(Journal(folder, IDENTITY, sizes=sizes)) as journal:
            self.stream = journal.stream
            journal.append([Begun("idle", 3, 5)])
            self.stored = [keyed(at, b"x" * size) for at in range(1, count + 1)]
            for record in self.stored:
                journal.append([record])
                if record.at == count // 2:
                    journal._index.checkpoint(0)
            journal.put_snapshot(count // 2, b"snapshot", (b"state",))
            self.whole = {path.name: path.read_bytes() for path in folder.iterdir()}

    def open(self, changed: dict[str, bytes | None], *, accept_loss: bool = False) -> Journal:
        """The folder as it was after the kill, but for these files; None: deleted."""
        for path in self.folder.iterdir():
            if path.name not in self.whole:
                path.unlink()
        for name, content in (self.whole | changed).items():
            (self.folder / name).unlink(missing_ok=True)
            if content is not None:  # with the space behind the end as a hole
                with (self.folder / name).open("xb") as file:
                    file.write(content.rstrip(b"\0"))
                    file.truncate(len(content))
        return Journal(self.folder, IDENTITY, "os", accept_loss, sizes=self._sizes)

    def check(self, changed: dict[str, bytes | None]) -> bool:
        """Assert that nothing acknowledged is missing; return whether the index was made anew."""
        numbers = [record.at for record in self.stored]
        with closing(self.open(changed)) as journal:
            assert (journal.stream, journal.head, journal.epoch) == (self.stream, numbers[-1], 2)
            assert list(journal.records(0)) == self.stored
            assert {row[:3] for row in journal.producers()} == {
                ("idle", 3, 0),
                ("p", 1, numbers[-1]),
            }
            assert journal.snapshot() == (len(numbers) // 2, b"snapshot", (b"state",))
            assert [journal.content("p", 1, at) for at in numbers] == [7 * at for at in numbers]
            return any("the index was made anew" in note for note in journal.notes)

    def flipped(self, name: str, bit: int) -> dict[str, bytes | None]:
        """A file with one bit changed."""
        content = bytearray(self.whole[name])
        content[bit // 8] ^= 1 << bit % 8
        return {name: bytes(content)}

    def bits(self, name: str) -> range:
        """The bits of a file."""
        return range(8 * len(self.whole[name]))


def small(folder: Path) -> Killed:
    """A journal of three records."""
    return Killed(folder, 3, size=30, sizes=SMALL)


def _changes(killed: Killed, chance: random.Random, count: int) -> Iterator[tuple[str, int]]:
    if not count:
        yield from ((name, bit) for name in INDEX for bit in killed.bits(name))
    for _ in range(count):
        name = chance.choice(INDEX)
        yield name, chance.choice(killed.bits(name))


def run(killed: Killed, changes: Iterable[tuple[str, int]]) -> str:
    """Flip these bits, one after the other; return how many there were. Raises AssertionError."""
    flipped, anew, wrong = dict.fromkeys(INDEX, 0), 0, list[str]()
    for name, bit in changes:
        try:
            anew += killed.check(killed.flipped(name, bit))
        except (AssertionError, JournalError) as error:
            wrong.append(f"{name}, bit {bit}: {error!r}")
        flipped[name] += 1
        if not flipped[name] % 10_000:
            print(
                f"{name}: {flipped[name]:,} bits, {len(wrong)} wrong", file=sys.stderr, flush=True
            )
    assert not wrong, "\n".join([*wrong[:20], f"{len(wrong)} in all"])
    deleted = 0
    for some in itertools.product((True, False), repeat=len(INDEX)):
        names = [name for name, gone in zip(INDEX, some, strict=True) if gone]
        killed.check(dict.fromkeys(names))
        deleted += 1
    counts = ", ".join(f"{count:,} bits of {name}" for name, count in flipped.items())
    return f"{counts}: {anew:,} times made anew; {deleted} sets of files deleted: lost 0"


def main() -> None:
    parser = argparse.ArgumentParser(description="Flip the bits of an index.")
    parser.add_argument("--random", type=int, default=0, help="this many bits of a larger journal")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(dir=None if asked.random else "/dev/shm") as folder:
        made = Path(folder) / "journal"
        killed = Killed(made, 60, size=3000, sizes=Sizes(1 << 24)) if asked.random else small(made)
        print(run(killed, _changes(killed, random.Random(asked.seed), asked.random)), end="")
    print(f" ({time.monotonic() - begun:.0f} s)")


if __name__ == "__main__":
    main()
