"""Lives of a journal on a recorded disk, and what each had acknowledged at any moment.

A life is a few starts, appends, producers' epochs, forgotten names, snapshots, expiries, ends and
kills, all without a power cut.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from streamer.journal.data_files import Sizes
from streamer.journal.record import Begun, Key, Received, Record, Snapshot
from streamer.journal.store import Durability, Journal
from tests.faults.recording import Log, RecordingDisk

IDENTITY = b"k=31 mode=grow"

SIZES = Sizes(file_bytes=1 << 14, page_bytes=512, checkpoint_rows=8)
"""Limits so small that a life reaches the end of files and of SQLite's log."""

KEEP_BYTES = 20_000


class Known(NamedTuple):
    """What a journal holds: ``records`` from ``oldest`` on. stream: "" before the first start.

    producers: by name, what was last stored for it.
    """

    stream: str
    epoch: int
    oldest: int
    records: tuple[Record, ...]
    snapshot: Snapshot | None
    producers: Mapping[str, Received]

    def plus(self, entries: Sequence[Record | Begun]) -> Known:
        """The content after these further entries."""
        producers = dict(self.producers)
        for entry in entries:
            if isinstance(entry, Begun):
                name, epoch, time = entry
                mark = producers[name].mark if name in producers else b""
                producers[name] = Received(name, epoch, 0, mark, time)
            elif entry.key is not None:
                name, epoch, sequence, _, mark = entry.key
                producers[name] = Received(name, epoch, sequence, mark, entry.time)
        records = *self.records, *(entry for entry in entries if isinstance(entry, Record))
        return self._replace(records=records, producers=producers)


NOTHING = Known("", 0, 1, (), None, {})


class Event(NamedTuple):
    """A call: the disk operations before its begin and its return, and what is known afterwards."""

    begin: int
    end: int
    after: Known


class Life:
    """Runs a life; ``events`` are in order, each acknowledged when it returned.

    checked_from: the first operation from which a cut must lose nothing.
    """

    def __init__(self, log: Log, vfs: str, known: Known, chance: random.Random) -> None:
        self.events = [Event(0, 0, known)]
        self.checked_from = 0
        self._log, self._vfs, self._chance = log, vfs, chance
        self._durability: Durability = "fsync"
        self._directory: Path = log.directory
        self._known = known

    def run(self) -> None:
        """Live until the recording is long enough."""
        if self._chance.random() < 0.15:
            self._switch()
        journal = self._open()
        for _ in range(self._chance.randrange(4, 16)):
            match self._chance.randrange(10):
                case 0:
                    self._snapshot(journal)
                case 1:
                    self._expire(journal)
                case 2:
                    journal.close() if self._chance.random() < 0.5 else kill(journal)
                    journal = self._open()
                case 3:
                    self._forget(journal)
                case _:
                    self._append(journal)
        kill(journal)

    @contextmanager
    def _event(self) -> Iterator[None]:
        begin = len(self._log.operations)
        yield
        self.events.append(Event(begin, len(self._log.operations), self._known))

    def _switch(self) -> None:
        """Switch from an owner without syncs to one with syncs: from then on everything is safe."""
        self._durability = "os"
        journal = self._open()
        for _ in range(self._chance.randrange(1, 6)):
            self._append(journal)
        if self._chance.random() < 0.5:
            self._snapshot(journal)
        kill(journal)
        self._durability = "fsync"
        self._log.switching = True
        kill(self._open())
        self._log.switching = False
        self.events = self.events[-1:]
        self.checked_from = len(self._log.operations)

    def _open(self) -> Journal:
        disk = RecordingDisk(self._log, self._vfs)
        with self._event():
            journal = Journal(
                self._directory,
                IDENTITY,
                self._durability,
                keep_bytes=KEEP_BYTES,
                sizes=SIZES,
                disk=disk,
            )
            known = self._known
            assert journal.head == len(known.records)
            self._known = known._replace(stream=journal.stream, epoch=journal.epoch)
        return journal

    def _append(self, journal: Journal) -> None:
        known, chance = self._known, self._chance
        group: list[Record | Begun] = []
        for _ in range(chance.choice((1, 1, 2, 4))):
            if chance.random() < 0.2:
                name = chance.choice(("a", "b", f"once {chance.random()}"))
                epoch = known.producers[name].epoch + 1 if name in known.producers else 1
                group.append(Begun(name, epoch, chance.randrange(100)))
            else:
                group.append(new_record(known, chance))
            known = known.plus(group[-1:])
        with self._event():
            journal.append(group)
            self._known = known
        journal.checkpoint()

    def _forget(self, journal: Journal) -> None:
        known, chance = self._known, self._chance
        asked = [name for name in known.producers if chance.random() < 0.5]
        kept = {record.key.producer for record in known.records[known.oldest - 1 :] if record.key}
        gone = {*asked} - kept
        with self._event():
            assert {*journal.forget(asked)} == gone
            left = {name: row for name, row in known.producers.items() if name not in gone}
            self._known = known._replace(producers=left)

    def _snapshot(self, journal: Journal) -> None:
        last = self._known.snapshot
        at = self._chance.randrange(last.at if last else 0, journal.head + 1)
        frames = tuple(self._chance.randbytes(n) for n in (self._chance.randrange(3000), 0, 9))
        snapshot = Snapshot(at, self._chance.randbytes(20), frames)
        with self._event():
            journal.put_snapshot(*snapshot)
            self._known = self._known._replace(snapshot=snapshot)

    def _expire(self, journal: Journal) -> None:
        with self._event():
            journal.expire(0)
            self._known = self._known._replace(oldest=journal.oldest)


def kill(journal: Journal) -> None:
    """End like a killed process: nothing more is written."""
    journal._failure = "killed"
    journal.close()


def new_record(known: Known, chance: random.Random) -> Record:
    """The next record, with its number as the sequence; some are larger than a data file."""
    at = len(known.records) + 1
    size = chance.choice((0, 10, 300, 1500, 1500, 4000))
    if chance.random() < 0.02:
        size = SIZES.file_bytes + 100
    key = None
    if chance.random() < 0.9:
        name = chance.choice("abc")
        epoch = known.producers[name].epoch if name in known.producers else 1
        key = Key(name, epoch, at, chance.randrange(1 << 32), b"%d" % at)
    frames = (chance.randbytes(size // 2), b"", chance.randbytes(size - size // 2))
    return Record(at, "batch", chance.randbytes(chance.choice((0, 30, 600))), frames, key, at)
