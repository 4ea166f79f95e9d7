"""The journal of one daemon, its only writer.

The data files have everything; the index is made from them, and lags behind after a power loss. In
this order: write the data, sync it, commit the index, which is not synced. A file name is synced
before anything in the file counts. Once ``append`` has returned, its entries survive a power loss
with durability ``fsync``, and a kill with ``os``.

Retention: expired records' rows are deleted first, then files that no row names.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Literal, NamedTuple

from streamer.journal.data_files import Sizes, data_file, data_file_numbers, placed
from streamer.journal.data_writer import DataWriter
from streamer.journal.disk import Disk, syncing, unread
from streamer.journal.opening import (
    Checked,
    DataLog,
    check_identity,
    home_of,
    new_state,
    own,
    producers_digest,
    recover,
    sync_all,
)
from streamer.journal.reader import JournalView, RecordReader
from streamer.journal.record import (
    Begun,
    Frame,
    JournalDamage,
    JournalError,
    JournalFailed,
    JournalFull,
    Key,
    Outline,
    Received,
    Record,
    Skimmed,
    Snapshot,
    Usage,
)
from streamer.journal.record_index import (
    ForgottenRow,
    Index,
    ProducerRow,
    Row,
    SnapshotRow,
    State,
    flat,
    record_row,
)
from streamer.journal.stored_snapshots import (
    read_snapshot,
    snapshot_file,
    snapshot_numbers,
    write_snapshot,
)

_HOUR = 3600 * 10**9
_AT_ONCE = 1024  # records per call; appends wait for it


class Limits(NamedTuple):
    """Limits on the retention of records that recovery does not need; 0: no limit."""

    bytes: int
    hours: float

    def expired(self, index: Index, state: State, snapshot: SnapshotRow | None, now: int) -> State:
        """Return the state without the oldest records beyond the limits, or unchanged."""
        needed = min(state.oldest - 1 + _AT_ONCE, snapshot.at if snapshot and snapshot.file else 0)
        oldest, kept = state.oldest, state.bytes
        if needed < oldest or not (self.bytes or self.hours):
            return state
        for row in index.records(oldest - 1, needed):
            # nothing is known about it, so it expires with the oldest
            if isinstance(row, JournalDamage):
                oldest += 1
                continue
            too_old = self.hours and row.time < now - int(self.hours * _HOUR)
            if not too_old and not (self.bytes and kept > self.bytes):
                break
            oldest, kept = row.at + 1, max(0, kept - row.size - len(row.meta))
        return state._replace(oldest=oldest, bytes=kept)


def delete_data_files(disk: Disk, directory: Path, index: Index, state: State, last: int) -> bool:
    """Delete data files before those that rows name and ``last``; return whether there were any."""
    first = state.file
    for row in index.records(state.oldest - 1, state.head):
        if isinstance(row, JournalDamage):
            first = 0  # a damaged row may name any file
            break
        if row.file:
            first = row.file
            break
    gone = [number for number in data_file_numbers(directory) if number < min(first, last)]
    for number in gone:
        disk.delete(data_file(directory, number))
    return bool(gone)


def delete_snapshots(disk: Disk, directory: Path, kept: SnapshotRow | None) -> None:
    """Delete all snapshots but one."""
    for number in snapshot_numbers(directory):
        if kept is None or number != kept.file:
            disk.delete(snapshot_file(directory, number))


Durability = Literal["fsync", "os"]


class Journal(JournalView):
    """Created by ``Journal.open``. One thread appends; another may store a snapshot concurrently.

    accepted: the damage given up by ``accept_loss``. notes: what else was wrong at the start, a
    line each. After JournalFailed, nothing can be stored. What meets a damaged index raises
    JournalDamage and stores nothing.
    """

    def __init__(
        self, directory: Path, *, synced: bool, limits: Limits, sizes: Sizes, disk: Disk
    ) -> None:
        self.accepted: list[JournalDamage] = []
        self.notes: list[str] = []
        self._directory, self._disk, self._limits, self._sizes = directory, disk, limits, sizes
        self._synced = synced
        self._failure: str | None = None
        self._one = threading.Lock()
        self._lock = own(disk, directory)
        self._index: Index | None = None
        self._producers: dict[bytes, ProducerRow] = {}
        self._snapshot: SnapshotRow | None = None
        self._data = DataWriter(disk, directory, sizes=sizes, synced=synced)

    @classmethod
    def open(
        cls,
        directory: str | Path,
        identity: bytes,
        durability: Durability = "fsync",
        accept_loss: bool = False,
        keep_bytes: int = 0,
        keep_hours: float = 0,
        *,
        sizes: Sizes | None = None,
        disk: Disk | None = None,
    ) -> Journal:
        """Open a directory, created if needed, and begin a new epoch in it.

        identity: the meaning of the records, words like ``name=value`` in UTF-8; refused if a
        different one is stored. keep_bytes, keep_hours: for ``expire``, 0 for no limit. Raises
        JournalInUse, JournalFull, JournalDamage for damage in what recovery needs (unless
        ``accept_loss``), and JournalError for a directory or a format that is not ours.
        """
        journal = cls(
            Path(directory),
            synced=durability == "fsync",
            limits=Limits(keep_bytes, keep_hours),
            sizes=sizes or Sizes(),
            disk=disk or Disk(),
        )
        try:
            journal._start(identity, accept_loss=accept_loss)
        except BaseException:
            journal._failure = "not open"
            journal.close()
            raise
        return journal

    def _start(self, identity: bytes, *, accept_loss: bool) -> None:
        disk, directory = self._disk, self._directory
        log = DataLog(directory, self._sizes)
        try:
            self._index, state, remade = recover(disk, directory, log, sizes=self._sizes)
            index = self._index
            self.notes += remade
            rows: list[Row | ForgottenRow] = []
            new = state is None
            if state is None:
                state, goes_on = new_state(directory, identity, synced=self._synced), False
            else:
                check_identity(directory, state.identity, identity)
                goes_on = log.has(state)
                if not goes_on:
                    path = data_file(directory, state.file)
                    self.notes.append(f"{path}, offset {state.begin}: the last group is damaged")
                goes_on = goes_on and not log.notes
        finally:
            log.close()
        if not new:
            checked = Checked(index, directory)
            if accept_loss:
                self.accepted, state, given_up = checked.mended()
                rows += given_up
                goes_on = goes_on and not rows
            elif found := list(checked.damages(everything=False)):
                raise found[0].of(len(found))
            self._producers = {
                row.name: row for row in [*index.producers(), *rows] if isinstance(row, ProducerRow)
            }
            self._snapshot = index.snapshot()
        if self._synced and not state.synced:
            sync_all(disk, directory)
        self._reader = RecordReader(index, directory)
        here = home_of(directory)
        if log.cut or state.home != here:
            why = "its end is damaged" if state.home == here else "a copy of a journal"
            state = state._replace(home=here, stream=os.urandom(8))
            self.notes.append(f"{directory}: {why}: it goes on as another stream")
        # what is damaged is not written over
        file = state.file if goes_on else max([state.file, *log.numbers])
        for number in log.numbers:
            if number > file:
                disk.delete(data_file(directory, number))
        self._data.start(file, state.begin, state.end if goes_on else 0)
        self._state = state
        self._commit(state._replace(epoch=state.epoch + 1, synced=int(self._synced)), rows)
        if new:
            with syncing(directory):
                disk.sync_directory(directory.parent)
        self._snapshot = index.snapshot()
        self._delete_data_files(self._state)
        delete_snapshots(disk, directory, self._snapshot)

    # ---- what is stored ---------------------------------------------------------------------

    def producers(self) -> list[Received]:
        """Return what was last received under each name, regardless of retention."""
        return [
            Received(row.name.decode(), row.epoch, row.sequence, row.mark, row.time)
            for row in self._producers.values()
        ]

    def content(self, producer: str, epoch: int, sequence: int) -> int | None:
        """The ``content`` of a stored batch's key; None if its record is no longer retained."""
        row = self._opened.key(producer.encode(), epoch, sequence)
        return None if row is None else row.content

    def snapshot(self) -> Snapshot | None:
        """Return the last snapshot."""
        row = self._opened.snapshot()
        return None if row is None else read_snapshot(self._directory, row)

    def records(self, after: int, until: int | None = None) -> Iterator[Record]:
        """Yield records with numbers in (after, until], ascending; ``until``: the current head.

        Raises JournalDamage, with its place, for a record that has changed, and JournalExpired if
        some of the records are no longer retained.
        """
        until = self.head if until is None else min(until, self.head)
        return self._reader.records(after, until, lambda: self.oldest)

    def about(self, at: int) -> Iterator[Record | Outline]:
        """Yield the records about record ``at``, ascending, as in ``history``."""
        return self._reader.about(at)

    def history(self, after: int, until: int) -> Iterator[Record | Outline]:
        """Like ``records``, with an Outline in place of each record that was given up."""
        return self._reader.history(after, until, lambda: self.oldest)

    def skim(self, after: int, until: int, kind: str) -> Iterator[Record | Outline | Skimmed]:
        """Like ``history``, but for records of this kind only rows are read."""
        return self._reader.skim(after, until, kind, lambda: self.oldest)

    def verify(self) -> list[JournalDamage]:
        """Return all damage; reads everything stored."""
        log = DataLog(self._directory, self._sizes)
        try:
            for _ in log.changes():
                pass
        finally:
            log.close()
        return [*log.notes, *Checked(self._opened, self._directory).damages(everything=True)]

    def usage(self) -> Usage:
        """Return how much is stored; raises JournalUnread."""
        disk = 0
        try:
            paths = list(self._directory.iterdir())
        except OSError as error:
            raise unread(self._directory, error) from error
        for path in paths:
            # another thread may have replaced the snapshot
            with suppress(FileNotFoundError):
                disk += path.stat().st_blocks * 512
        return Usage(self._state.bytes, disk, self.oldest, self.head)

    # ---- storing ----------------------------------------------------------------------------

    def append(self, entries: Sequence[Record | Begun]) -> None:
        """Store a group of records and producer epochs, in order and atomically.

        Raises JournalFull if nothing was stored and a retry may succeed, JournalFailed if it is
        unknown whether it was stored (the journal is then unusable), and ValueError if numbers or
        keys are out of order.
        """
        if not entries:
            return
        with self._working():
            state, producers = self._state, self._followers(entries)
            records = [entry for entry in entries if isinstance(entry, Record)]
            group = [tuple(map(flat, record.frames)) for record in records]
            rows: list[Row | ForgottenRow] = []
            offset = added = 0
            for record, frames in zip(records, group, strict=True):
                row = record_row(record, frames, offset)
                rows.append(row)
                offset += row.size
                added += row.size + len(row.meta)
            digest = state.digest
            for name, producer in producers.items():
                before = self._producers.get(name)
                digest += producers_digest([producer]) - producers_digest(
                    [before] if before else []
                )
            state = state._replace(
                head=state.head + len(rows),
                bytes=state.bytes + added,
                producers=len(self._producers.keys() | producers.keys()),
                digest=digest & 0xFFFFFFFF,
            )
            self._commit(state, [*rows, *producers.values()], group)
            self._producers.update(producers)

    def _commit(
        self,
        state: State,
        rows: Sequence[Row | ForgottenRow] = (),
        records: Sequence[Sequence[Frame]] = (),
    ) -> None:
        """Store rows, the frames of those that are of records, and a new state; atomically."""
        index, oldest = self._opened, self._state.oldest
        rows = [*rows, state._replace(serial=0, sum=0, file=0, begin=0, end=0)]
        self._check_place()
        group, sums = self._data.write(self._state, rows, records, self._everything)
        try:
            self._check_place()
            left = iter(sums)
            rows = [placed(row, group, left) for row in rows]
            until = state.oldest - 1 if state.oldest > oldest else 0
            try:
                index.commit(rows, until=until)
            except JournalFull:
                # files of expired records make room
                oldest = state.oldest
                if not until or not self._delete_data_files(self._state._replace(oldest=oldest)):
                    raise
                index.commit(rows, until=until)
        except JournalError:
            self._data.take_back()
            raise
        self._data.taken(group.end)
        assert isinstance(rows[-1], State)
        self._state = rows[-1]

    def _delete_data_files(self, state: State) -> bool:
        disk, directory = self._disk, self._directory
        return delete_data_files(disk, directory, self._opened, state, self._data.file)

    def _check_place(self) -> None:
        """Raise JournalFull if a restart would not find what is stored now."""
        self._lock.check()
        if not self._data.is_there():
            raise JournalFull(
                f"{self._data.path}: was deleted or replaced: put it back, or start again"
            )

    def _everything(self) -> list[Row | ForgottenRow]:
        """Return what a new data file begins with."""
        snapshot = [] if self._snapshot is None else [self._snapshot]
        return [*self._producers.values(), *snapshot]

    def checkpoint(self) -> None:
        """Copy SQLite's log into the index if it is long; call it now and then, when idle.

        This takes milliseconds, which should not delay an answer.
        """
        with self._working() as index:
            index.checkpoint(self._sizes.checkpoint_pages)

    def forget(self, producers: Iterable[str]) -> list[str]:
        """Forget those producers that have no retained record; return them."""
        with self._working() as index:
            names = {name.encode() for name in producers}
            rows = [row for name in names if (row := self._producers.get(name))]
            rows = [row for row in rows if not index.has_records_of(row.name)]
            if not rows:
                return []
            state = self._state._replace(
                producers=len(self._producers) - len(rows),
                digest=self._state.digest - producers_digest(rows) & 0xFFFFFFFF,
            )
            self._commit(state, [ForgottenRow(row.name) for row in rows])
            for row in rows:
                del self._producers[row.name]
            return [row.name.decode() for row in rows]

    def put_snapshot(self, at: int, meta: bytes, frames: Sequence[Frame]) -> None:
        """Store the state after record ``at``, replacing the previous snapshot.

        JournalFull keeps the previous one. Raises ValueError if ``at`` is not stored, or not later.
        """
        before = self._snapshot
        if at > self.head or (before is not None and at < before.at):
            raise ValueError(
                f"a snapshot at {at}: head is {self.head}, the last is {before and before.at}"
            )
        with self._working(alone=False):
            snapshot = Snapshot(at, meta, tuple(map(flat, frames)))
            number = max([0, *snapshot_numbers(self._directory)]) + 1
            row = write_snapshot(self._disk, self._directory, number, snapshot, synced=self._synced)
            with self._one:
                self._commit(self._state, [row])
                self._snapshot = row
            delete_snapshots(self._disk, self._directory, row)

    def expire(self, now: int) -> int:
        """Delete the oldest records beyond the limits, a limited number per call; return how many.

        now: nanoseconds since 1970. Records after the last snapshot stay; without one, all do.
        """
        with self._working() as index:
            before = self._state
            state = self._limits.expired(index, before, self._snapshot, now)
            if state.oldest == before.oldest:
                return 0
            self._commit(state)
            self._delete_data_files(self._state)
            index.checkpoint(self._sizes.checkpoint_pages)
            return state.oldest - before.oldest

    def close(self) -> None:
        """Close the journal and release the directory."""
        try:
            if self._index is not None and self._failure is None:
                self._index.checkpoint(0)
        finally:
            if self._index is not None:
                self._index.close()
            self._data.close()
            self._lock.close()

    @property
    def _opened(self) -> Index:
        assert self._index is not None
        return self._index

    @contextmanager
    def _working(self, *, alone: bool = True) -> Iterator[Index]:
        """Yield the index to store in, unless a failure has occurred before; remember failures."""
        if self._failure is not None:
            raise JournalFailed(self._failure)
        try:
            with self._one if alone else nullcontext():
                yield self._opened
        except JournalFailed as error:
            self._failure = str(error)
            raise

    def _followers(self, entries: Sequence[Record | Begun]) -> dict[bytes, ProducerRow]:
        """Return the producers' rows after these entries; ValueError if they are out of order."""
        rows: dict[bytes, ProducerRow] = {}
        at = self.head
        for entry in entries:
            key: Key | Begun | None = entry if isinstance(entry, Begun) else entry.key
            if isinstance(entry, Record):
                at += 1
                if entry.at != at:
                    raise ValueError(f"record {entry.at} where {at} is next")
            if key is None:
                continue
            name = key.producer.encode()
            last = rows.get(name) or self._producers.get(name)
            sequence, mark = (key.sequence, key.mark) if isinstance(key, Key) else (0, None)
            if last is not None and (key.epoch, sequence) <= (last.epoch, last.sequence):
                raise ValueError(f"behind record {at}: {key} after {last[1:3]}")
            if mark is None:
                mark = last.mark if last is not None else b""
            rows[name] = ProducerRow(name, key.epoch, sequence, bytes(mark), entry.time)
        return rows
