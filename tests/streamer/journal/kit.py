"""Records for tests of the journal, and a plain picture of what it must hold."""

from __future__ import annotations

import random
from contextlib import closing
from pathlib import Path

from streamer.journal.data_files import DataLog, Sizes
from streamer.journal.record import JournalDamage, Key, Record
from streamer.journal.store import Journal, damages

IDENTITY = b"k=31 mode=grow strands=both"

SMALL = Sizes(file_bytes=1 << 16, page_bytes=512, checkpoint_rows=12)
"""Files and pages so small that a test meets the end of each."""

AWKWARD = (0, 1, 7, 447, 448, 449, 511, 512, 513, 4095, 4096, 4097, 65471, 65472, 65473, 70_000)
"""Sizes of frames around pages and files of ``SMALL``."""

KINDS = "batch", "dictionary", "revision", "settled"


opened: list[Journal] = []
"""Those of ``open_small`` that are open, which are closed at the end of a test."""


class _SmallJournal(Journal):
    def close(self) -> None:
        opened.remove(self)
        super().close()


def open_small(directory: Path, **options) -> Journal:
    """A journal with small files."""
    opened.append(_SmallJournal(directory, IDENTITY, sizes=SMALL, **options))
    return opened[-1]


def verify(journal: Journal) -> list[JournalDamage]:
    """All that is wrong with an open journal."""
    with closing(DataLog(journal.directory, journal._sizes)) as log:
        for _ in log.changes():
            pass
        return [*log.notes, *damages(journal._index, journal.directory, everything=True)]


def record(at: int, *frames: bytes, key: Key | None = None, time: int | None = None) -> Record:
    """A record with given frames."""
    return Record(at, "batch", b"meta %d" % at, frames, key, at * 10**9 if time is None else time)


def keyed(at: int, *frames: bytes, producer: str = "p", epoch: int = 1) -> Record:
    """A record of a batch with its number as the sequence."""
    return record(at, *frames, key=Key(producer, epoch, at, at * 7, b"mark %d" % at))


def random_record(at: int, chance: random.Random, largest: int = 3000) -> Record:
    """A record as it may come; keys follow each other for every producer."""
    sizes = [
        chance.choice((0, 1, 64, chance.randrange(largest))) for _ in range(chance.randrange(4))
    ]
    key = None
    if chance.random() < 0.8:
        mark = chance.randbytes(chance.choice((0, 3, 256)))
        name = chance.choice(("a", "producer", "ü" * 20))
        key = Key(name, 1 + at // 40, at, chance.randrange(1 << 32), mark)
    frames = tuple(chance.randbytes(size) for size in sizes)
    meta = chance.randbytes(chance.choice((0, 5, 900)))
    about = chance.randrange(1, at) if at > 1 and chance.random() < 0.3 else None
    return Record(at, chance.choice(KINDS), meta, frames, key, chance.randrange(1 << 62), about)


def groups(count: int, chance: random.Random, first: int = 1) -> list[list[Record]]:
    """Groups of one to five records."""
    made = []
    for _ in range(count):
        size = chance.randrange(1, 6)
        made.append([random_record(at, chance) for at in range(first, first + size)])
        first += size
    return made


def last_of_each(records: list[Record]) -> set[tuple[str, int, int, bytes, int]]:
    """What the journal must know of producers after these records."""
    last = {}
    for one in records:
        if one.key is not None:
            name, epoch, sequence, _, mark = one.key
            last[name] = epoch, sequence, mark, one.time
    return {(name, *rest) for name, rest in last.items()}


def assert_holds(journal: Journal, records: list[Record], oldest: int = 1) -> None:
    """The journal holds exactly these records, from ``oldest`` on, and what follows from them."""
    assert journal.head == len(records)
    assert journal.oldest == oldest
    assert list(journal.records(oldest - 1)) == records[oldest - 1 :]
    assert {tuple(row) for row in journal.producers()} == last_of_each(records)
    for one in records:
        about = [r for r in records[oldest - 1 :] if r.about == one.at]
        assert list(journal.about(one.at)) == about
        if one.key is not None:
            kept = one.key.content if one.at >= oldest else None
            assert journal.content(*one.key[:3]) == kept
    kept_bytes = sum(len(one.meta) + sum(map(len, one.frames)) for one in records[oldest - 1 :])
    assert journal.usage().bytes == kept_bytes


def small_journal(directory, *, snapshot: int, count: int = 12) -> list[Record]:
    """A small journal with everything in it, closed."""
    journal = open_small(directory)
    stored = [one for group in groups(count, random.Random(6)) for one in group]
    for begin in range(0, len(stored), 3):
        journal.append(stored[begin : begin + 3])
        if begin // 3 == 4:
            journal.put_snapshot(snapshot, b"snapshot", (b"abc" * 20, b"", b"d"))
    journal.close()
    return stored


def picture(directory) -> tuple[object, list[str]]:
    """All that a journal says about itself, and its notes; raises JournalDamage."""
    journal = open_small(directory, durability="os")
    try:
        snapshot = journal.snapshot()
        records = list(journal.records(journal.oldest - 1))
        contents = [one.key and journal.content(*one.key[:3]) for one in records]
        found = (
            journal.stream,
            journal.epoch,
            journal.head,
            journal.oldest,
            sorted(journal.producers()),
            snapshot,
            records,
            contents,
            journal.usage().bytes,
        )
        return found, journal.notes
    finally:
        journal.close()


class Unreadable:
    """In the place of an index's connection: each query fails."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def execute(self, *_: object) -> None:
        raise self._error

    def close(self) -> None:
        """Nothing is open."""
