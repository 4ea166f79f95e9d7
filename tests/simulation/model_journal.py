"""The store of records as a model: data and an index on a simulated disk, in steps.

It keeps the promises of ``streamer.journal``, which has its own power cut tests: data is synced
before the index names it, transactions are atomic, and stored bytes are checked. At each step the
process may be killed or the power may fail.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import msgpack

from streamer.journal.record import (
    Begun,
    JournalDamage,
    JournalExpired,
    JournalFailed,
    JournalFull,
    Key,
    Received,
    Record,
    Snapshot,
)
from streamer.protocol.wire import crc32c
from tests.faults.power import DiskModel

INDEX, DATA, SNAPSHOT = "index", "data", "snapshot-"

# seconds of a write and of a sync
_WRITE, _SYNC = 0.0004, 0.004

T = TypeVar("T")


class DiskStep(float):
    """Seconds until the next step; ``done`` describes the last one."""

    done: str

    def __new__(cls, seconds: float, done: str) -> DiskStep:
        step = super().__new__(cls, seconds)
        step.done = done
        return step


Storing = Generator[DiskStep, None, T]


class JournalModel:
    """A view of the committed state, with methods of JournalReader and Journal.

    committed: shared with the owner, as it is seen by other processes.
    """

    def __init__(self, disk: MachineDisk, committed: Committed) -> None:
        self.committed = committed
        self.disk = disk

    def __getattr__(self, name: str) -> Any:
        """Stream, epoch, head and oldest of what is committed."""
        return getattr(self.committed, name)

    def refresh(self) -> int:
        return self.head

    def close(self) -> None:
        """Nothing to close."""

    def records(self, after: int, until: int | None = None) -> Iterator[Record]:
        until = self.head if until is None else min(until, self.head)
        return (record for record in self.history(after, until) if not record.lost)

    def history(self, after: int, until: int, *, skimmed: str = "") -> Iterator[Record]:
        for at in range(after + 1, max(until, after + 1) + 1):
            if at < self.oldest:
                raise JournalExpired(f"record {at} is no longer kept", self.oldest)
            if at <= until:
                row = self.committed.rows[at]
                yield self.record(row, frames=row.kind != skimmed)

    def about(self, at: int) -> Iterator[Record]:
        for row in sorted(self.committed.rows.values()):
            if row.about == at:
                yield self.record(row)

    def record(self, row: Row, *, frames: bool = True) -> Record:
        """A record, checked; without its frames if it was given up."""
        key = None if row.key is None else Key(*row.key)
        about = key, row.time, row.about, row.lost
        if row.lost or not frames:
            return Record(row.at, row.kind, row.meta, (), *about)
        data = self.read(DATA, row.offset, sum(row.lengths))
        if crc32c([data]) != row.sum:
            raise JournalDamage("wrong checksum", file=DATA, offset=row.offset, record=row.at)
        return Record(row.at, row.kind, row.meta, _split(data, row.lengths), *about)

    def read(self, name: str, offset: int, size: int) -> bytes:
        """Some bytes of a file."""
        return bytes(self.disk.files.get(name, b"")[offset : offset + size])

    def outlines(self, after: int) -> Iterator[Record]:
        for at in range(max(after + 1, self.oldest), self.head + 1):
            yield self.record(self.committed.rows[at], frames=False)


def _split(data: bytes, lengths: Sequence[int]) -> tuple[bytes, ...]:
    frames, begin = [], 0
    for length in lengths:
        frames.append(data[begin : begin + length])
        begin += length
    return tuple(frames)


class ReadJournal(JournalModel):
    """The interface of JournalReader."""

    def snapshot(self) -> StoredSnapshot | None:
        return self.committed.snapshot

    def open_snapshot(self, row: StoredSnapshot) -> ReadSnapshot:
        return ReadSnapshot(row, self.read(row.file, 0, sum(row.lengths)))


class ReadSnapshot:
    """As SnapshotFile; it stays readable after it was replaced."""

    def __init__(self, row: StoredSnapshot, data: bytes) -> None:
        self.row = row
        self._data = data
        if not row.file:
            raise JournalDamage("snapshot: given up", file=SNAPSHOT)

    def size(self, frame: int) -> int:
        return self.row.lengths[frame]

    def check(self, most: int) -> bool:
        _check_snapshot(self.row, self._data)
        return True

    def pieces(self, frame: int) -> Iterator[bytes]:
        yield _split(self._data, self.row.lengths)[frame]


def _check_snapshot(row: StoredSnapshot, data: bytes) -> None:
    if crc32c([data]) != row.sum:
        raise JournalDamage("snapshot: wrong checksum", file=row.file, offset=0)


class OwnedJournal(JournalModel):
    """The interface of Journal, for its only writer, after ``opening``. synced: with ``fsync``."""

    def __init__(self, disk: MachineDisk, chance: random.Random, *, synced: bool) -> None:
        super().__init__(disk, Committed())
        self._chance = chance
        self._synced = synced
        self._commits = False

    def opening(self, *, accept_loss: bool) -> Storing[None]:
        """Recover, and begin a new epoch. JournalDamage unless ``accept_loss``."""
        for name in (INDEX, DATA):
            if name not in self.disk.files:
                self.disk.create(name)
        self.disk.sync_names()
        yield self._step(_SYNC, "opened")
        self.committed = Committed.read(bytes(self.disk.files[INDEX]))
        change: dict[str, Any] = {"epoch": self.epoch + 1}
        if not self.stream:
            change["stream"] = f"{self._chance.getrandbits(64):016x}"
        if damages := self._damages():
            if not accept_loss:
                raise damages[0]
            at = [damage.record for damage in damages]
            rows = [self.committed.rows[record] for record in at if record is not None]
            change["rows"] = [row._replace(lengths=[], key=None, lost=True) for row in rows]
            if None in at and self.committed.snapshot is not None:
                given_up = self.committed.snapshot._replace(file="", lengths=[], sum=0)
                change["snapshot"] = given_up
        yield from self._commit(change)

    def snapshot(self) -> Snapshot | None:
        row = self.committed.snapshot
        if row is None or not row.file:
            return row and Snapshot(row.at, row.meta, ())
        data = self.read(row.file, 0, sum(row.lengths))
        _check_snapshot(row, data)
        return Snapshot(row.at, row.meta, _split(data, row.lengths))

    def producers(self) -> list[Received]:
        return [*self.committed.producers.values()]

    def content(self, producer: str, epoch: int, sequence: int) -> int | None:
        return self.committed.contents.get((producer, epoch, sequence))

    def _damages(self) -> list[JournalDamage]:
        """The damages that recovery would meet; if there are any, all damages."""
        found: list[JournalDamage] = []
        after = self.oldest - 1
        try:
            if (snapshot := self.snapshot()) is not None and snapshot.frames:
                after = snapshot.at
        except JournalDamage as damage:
            found.append(damage)
        rows = [self.committed.rows[at] for at in range(self.oldest, self.head + 1)]
        for row in rows:
            try:
                if not row.lost:
                    self.record(row)
            except JournalDamage as damage:
                found.append(damage)
        needed = [d for d in found if d.record is None or d.record > after]
        return found if needed else []

    def appending(self, entries: Sequence[Record | Begun]) -> Storing[None]:
        """Store a group; JournalFull, JournalFailed as ``Journal.append``."""
        records = [entry for entry in entries if isinstance(entry, Record)]
        begun = [entry for entry in entries if isinstance(entry, Begun)]
        rows, data, offset = [], b"", self.committed.data_end
        for record in records:
            assert record.at == self.head + 1 + len(rows), "numbers do not follow"
            frames = [bytes(frame) for frame in record.frames]
            joined = b"".join(frames)
            lengths = [len(frame) for frame in frames]
            place = offset + len(data)
            crc = crc32c([joined])
            about = record.key, record.time, record.about
            rows.append(Row(record.at, record.kind, record.meta, place, lengths, crc, *about))
            data += joined
        if records:
            # data beyond the end was never committed
            yield from self._write(DATA, offset, data)
            if self._synced:
                yield from self._sync(DATA)
        yield from self._commit({"rows": rows, "begun": begun})

    def storing(self, snapshot: Snapshot) -> Storing[None]:
        """Store a snapshot that replaces the previous one."""
        before = self.committed.snapshot
        assert before is None or snapshot.at >= before.at
        others = [name for name in self.disk.files if name.startswith(SNAPSHOT)]
        name = SNAPSHOT + str(1 + max((int(n.removeprefix(SNAPSHOT)) for n in others), default=0))
        self.disk.create(name)
        frames = [bytes(frame) for frame in snapshot.frames]
        yield from self._write(name, 0, b"".join(frames))
        if self._synced:
            yield from self._sync(name)
            self.disk.sync_names()
            yield self._step(_SYNC, "names synced")
        lengths = [len(frame) for frame in frames]
        row = StoredSnapshot(snapshot.at, name, lengths, crc32c(frames), snapshot.meta)
        yield from self._commit({"snapshot": row})
        for other in others:
            self.disk.delete(other)

    def expiring(self, keep: int) -> Storing[int]:
        """Delete all but the last ``keep`` records and those that recovery needs."""
        snapshot = self.committed.snapshot
        needed = 0 if snapshot is None else snapshot.at
        oldest = max(self.oldest, min(needed, self.head - keep) + 1)
        gone = oldest - self.oldest
        if gone:
            yield from self._commit({"oldest": oldest})
        return gone

    def _commit(self, change: dict[str, Any]) -> Storing[None]:
        # one transaction at a time, as in SQLite
        while self._commits:
            yield self._step(_WRITE, "waited")
        self._commits = True
        try:
            yield from self._commit_alone(change)
        finally:
            self._commits = False
        yield self._step(_WRITE, "committed")

    def _commit_alone(self, change: dict[str, Any]) -> Storing[None]:
        committed = self.committed
        data = committed.packed(change)
        yield from self._write(INDEX, committed.end, data)
        if self._synced:
            yield from self._sync(INDEX)
        committed.take(data)

    def _write(self, name: str, offset: int, data: bytes) -> Storing[None]:
        half = len(data) // 2
        self.disk.write(name, offset, data[:half])
        yield self._step(_WRITE, f"half of {name} written")
        self.disk.write(name, offset + half, data[half:])
        yield self._step(_WRITE, f"{name} written")

    def _sync(self, name: str) -> Storing[None]:
        yield self._step(_SYNC, f"{name} syncs")
        self.disk.sync(name)
        yield self._step(_WRITE, f"{name} synced")

    def _step(self, mean: float, done: str) -> DiskStep:
        return DiskStep(min(self._chance.expovariate(1 / mean), 50 * mean), done)


_HEAD = struct.Struct("<II")


class Row(NamedTuple):
    """The index entry of a record."""

    at: int
    kind: str
    meta: bytes
    offset: int
    lengths: list[int]
    sum: int
    key: list[Any] | None
    time: int
    about: int | None
    lost: bool = False


class StoredSnapshot(NamedTuple):
    """The index entry of a snapshot; without a file it was given up."""

    at: int
    file: str
    lengths: list[int]
    sum: int
    meta: bytes


@dataclass
class Committed:
    """The state after the transactions so far."""

    stream: str = ""
    epoch: int = 0
    head: int = 0
    oldest: int = 1
    rows: dict[int, Row] = field(default_factory=dict)
    producers: dict[str, Received] = field(default_factory=dict)
    contents: dict[tuple[str, int, int], int] = field(default_factory=dict)
    snapshot: StoredSnapshot | None = None
    # the ends of the data and of the index
    data_end: int = 0
    end: int = 0
    _chain: int = 0

    @classmethod
    def read(cls, index: bytes) -> Committed:
        """Read all complete transactions of an index."""
        found = cls()
        while found.take(index[found.end :]):
            pass
        return found

    def packed(self, change: dict[str, Any]) -> bytes:
        """The next transaction."""
        body: bytes = msgpack.packb(change)
        return _HEAD.pack(len(body), self._sum(body)) + body

    def take(self, data: bytes) -> bool:
        """Apply the transaction at the beginning of ``data``; returns whether there is one."""
        if len(data) < _HEAD.size:
            return False
        size, crc = _HEAD.unpack(data[: _HEAD.size])
        body = data[_HEAD.size : _HEAD.size + size]
        if not size or len(body) < size or self._sum(body) != crc:
            return False
        self._apply(msgpack.unpackb(body))
        self.end += _HEAD.size + size
        self._chain = crc
        return True

    def _sum(self, body: bytes) -> int:
        return crc32c([self._chain.to_bytes(4, "little"), body])

    def _apply(self, change: dict[str, Any]) -> None:
        self.stream = change.get("stream", self.stream)
        self.epoch = change.get("epoch", self.epoch)
        for fields in change.get("rows", ()):
            row = Row(*fields)
            self._forget(row.at)
            self.rows[row.at] = row
            self.head = max(self.head, row.at)
            self.data_end = max(self.data_end, row.offset + sum(row.lengths))
            if row.key is not None:
                key = Key(*row.key)
                self.producers[key.producer] = Received(*key[:3], key.mark, row.time)
                self.contents[key[:3]] = key.content
        for name, epoch, time in change.get("begun", ()):
            before = self.producers.get(name)
            self.producers[name] = Received(name, epoch, 0, before.mark if before else b"", time)
        self.oldest = change.get("oldest", self.oldest)
        for at in [at for at in self.rows if at < self.oldest]:
            self._forget(at)
        if "snapshot" in change:
            self.snapshot = StoredSnapshot(*change["snapshot"])

    def _forget(self, at: int) -> None:
        row = self.rows.pop(at, None)
        if row is not None and row.key is not None:
            del self.contents[Key(*row.key)[:3]]


class MachineDisk:
    """Files by name. full: nothing more can be written. failing: the next sync fails.

    cuts: the number of power cuts.
    """

    def __init__(self, chance: random.Random) -> None:
        self.files: dict[str, bytearray] = {}
        self.full = self.failing = False
        self._chance = chance
        self._begin({})

    def _begin(self, content: dict[str, bytes]) -> None:
        self.files = {name: bytearray(data) for name, data in content.items()}
        self._model = DiskModel(content)
        self._numbers = self._model.first_files()
        self._made = 0

    def create(self, name: str) -> None:
        """Make an empty file; its name is not synced."""
        self.files[name] = bytearray()
        self._made += 1
        self._numbers[name] = self._made
        self._model.do(("create", name, self._made))

    def delete(self, name: str) -> None:
        """Remove a file."""
        del self.files[name]
        self._model.do(("delete", name))

    def write(self, name: str, offset: int, data: bytes) -> None:
        """Write over existing content or at the end. JournalFull leaves half of it."""
        if self.full:
            self._write(name, offset, data[: len(data) // 2])
            raise JournalFull(f"{name}: no room")
        self._write(name, offset, data)

    def _write(self, name: str, offset: int, data: bytes) -> None:
        file = self.files[name]
        assert offset <= len(file), "a hole"
        file[offset : offset + len(data)] = data
        self._model.do(("write", self._numbers[name], offset, bytes(data)))

    def sync(self, name: str) -> None:
        """Sync the content. JournalFailed: written data may be lost."""
        if self.failing:
            self.failing = False
            # after a failed sync the kernel treats the pages as clean, and may drop them
            survived = self._model.after_cut(self._chance) or {}
            self.files[name] = bytearray(survived.get(name, b""))
            self._begin({name: bytes(data) for name, data in self.files.items()})
            raise JournalFailed(f"{name}: sync failed")
        self._model.do(("sync", self._numbers[name]))

    def sync_names(self) -> None:
        """Sync the names of all files."""
        self._model.do(("sync names",))

    def cut_power(self) -> None:
        """Cut the power: unsynced data survives in part."""
        self._begin(self._model.after_cut(self._chance) or {})

    def flip(self, name: str, offset: int, bit: int) -> None:
        """Flip a stored bit."""
        self.files[name][offset] ^= 1 << bit
        self._begin({name: bytes(data) for name, data in self.files.items()})
