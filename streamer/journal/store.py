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
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Literal

from streamer.journal.data_files import (
    DataLog,
    DataWriter,
    Sizes,
    data_file,
    data_file_numbers,
    placed,
    read_snapshot,
    snapshot_file,
    snapshot_numbers,
    write_snapshot,
)
from streamer.journal.disk import Disk, storing, unread
from streamer.journal.opening import (
    check_identity,
    give_up,
    home_of,
    new_state,
    own,
    producers_digest,
    recover,
    sync_all,
)
from streamer.journal.reader import JournalView
from streamer.journal.record import (
    Begun,
    Frame,
    JournalDamage,
    JournalError,
    JournalFailed,
    JournalFull,
    Key,
    Received,
    Record,
    Snapshot,
    Usage,
)
from streamer.journal.record_index import (
    ForgottenRow,
    ProducerRow,
    Row,
    State,
    flat,
    record_row,
)

_HOUR = 3600 * 10**9
_AT_ONCE = 1024  # records per call; appends wait for it


Durability = Literal["fsync", "os"]


class Journal(JournalView):
    """One thread appends; another may store a snapshot concurrently.

    accepted: the damage given up by ``accept_loss``. notes: what else was wrong at the start, a
    line each. After JournalFailed, nothing can be stored. What meets a damaged index raises
    JournalDamage and stores nothing.
    """

    def __init__(
        self,
        directory: str | Path,
        identity: bytes,
        durability: Durability = "fsync",
        accept_loss: bool = False,
        keep_bytes: int = 0,
        keep_hours: float = 0,
        *,
        sizes: Sizes | None = None,
        disk: Disk | None = None,
    ) -> None:
        """Open a directory, created if needed, and begin a new epoch in it.

        identity: the meaning of the records, words like ``name=value`` in UTF-8; refused if a
        different one is stored. keep_bytes, keep_hours: for ``expire``, 0 for no limit. Raises
        JournalInUse, JournalFull, JournalDamage for damage in what recovery needs (unless
        ``accept_loss``), and JournalError for a directory or a format that is not ours.
        """
        self.accepted: list[JournalDamage] = []
        self.notes: list[str] = []
        self.directory = Path(directory)
        self._disk, self._sizes = disk or Disk(), sizes or Sizes()
        self._synced = durability == "fsync"
        self._keep_bytes, self._keep_hours = keep_bytes, keep_hours
        self._failure: str | None = None
        self._one = threading.Lock()
        self._data = DataWriter(self._disk, self.directory, sizes=self._sizes, synced=self._synced)
        self._lock = own(self._disk, self.directory)
        with ExitStack() as opened:
            opened.callback(self._lock.close)
            opened.callback(self._data.close)
            self._start(identity, opened, accept_loss=accept_loss)
            self._closing = opened.pop_all()

    def _start(self, identity: bytes, opened: ExitStack, *, accept_loss: bool) -> None:
        disk, directory = self._disk, self.directory
        rows: list[Row] = []
        with closing(DataLog(directory, self._sizes)) as log:
            self._index, damaged, self.notes = recover(
                disk, directory, log, sizes=self._sizes, everything=accept_loss
            )
            index, stored = self._index, log.state
            opened.callback(index.close)
            state = stored or new_state(directory, identity, synced=self._synced)
            check_identity(directory, state.identity, identity)
            goes_on = stored is not None and log.has(state)
            if stored is not None and not goes_on:
                path = data_file(directory, state.file)
                self.notes.append(f"{path}: offset {state.begin}: the last group is damaged")
        if damaged and not accept_loss:
            raise damaged[0].of(len(damaged))
        if damaged:
            self.accepted = damaged
            state, rows = give_up(index, directory, damaged)
        self._producers = {row.name: row for row in index.producers()}
        self._snapshot = index.snapshot()
        if self._synced and not state.synced:
            sync_all(disk, directory)
        here = home_of(directory)
        if log.cut or state.home != here:
            why = "its end is damaged" if state.home == here else "a copy of a journal"
            state = state._replace(home=here, stream=os.urandom(8))
            self.notes.append(f"{directory}: {why}: it goes on as another stream")
        # what is damaged is not written over
        goes_on = goes_on and not log.notes and not rows
        file = state.file if goes_on else max([state.file, *log.numbers])
        for number in log.numbers:
            if number > file:
                disk.delete(data_file(directory, number))
        self._data.start(file, state.begin, state.end if goes_on else 0)
        self._state = state
        self._commit(state._replace(epoch=state.epoch + 1, synced=int(self._synced)), rows)
        if stored is None:
            with storing(directory, sync=True):
                disk.sync_directory(directory.parent)
        self._snapshot = index.snapshot()
        self._delete_data_files(self._state)
        self._delete_snapshots()

    # ---- what is stored ---------------------------------------------------------------------

    def producers(self) -> list[Received]:
        """Return what was last received under each name, regardless of retention."""
        return [
            Received(row.name.decode(), row.epoch, row.sequence, row.mark, row.time)
            for row in self._producers.values()
        ]

    def content(self, producer: str, epoch: int, sequence: int) -> int | None:
        """The ``content`` of a stored batch's key; None if its record is no longer retained."""
        row = self._index.key(producer.encode(), epoch, sequence)
        return None if row is None else row.content

    def snapshot(self) -> Snapshot | None:
        """Return the last snapshot."""
        row = self._index.snapshot()
        return None if row is None else read_snapshot(self.directory, row)

    def usage(self) -> Usage:
        """Return how much is stored; raises JournalUnread."""
        disk = 0
        try:
            paths = list(self.directory.iterdir())
        except OSError as error:
            raise unread(self.directory, error) from error
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
            rows: list[Row] = []
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
        rows: Sequence[Row] = (),
        records: Sequence[Sequence[Frame]] = (),
    ) -> None:
        """Store rows, the frames of those that are of records, and a new state; atomically."""
        index, oldest = self._index, self._state.oldest
        rows = [*rows, state._replace(serial=0, sum=0, file=0, begin=0, end=0)]
        self._check_place()
        group, sums = self._data.write(self._state, rows, records, self._everything)
        try:
            self._check_place()
            left = iter(sums)
            rows = [placed(row, group, left) for row in rows]
            try:
                index.put(rows)
            except JournalFull:
                # files of expired records make room
                expired = self._state._replace(oldest=state.oldest)
                if state.oldest == oldest or not self._delete_data_files(expired):
                    raise
                index.put(rows)
        except JournalError:
            self._data.take_back()
            raise
        self._data.end = group.end
        assert isinstance(rows[-1], State)
        self._state = rows[-1]

    def _delete_data_files(self, state: State) -> bool:
        """Delete files before those that rows name and the last; return whether there were any."""
        first = state.file
        for row in self._index.records(state.oldest - 1, state.head):
            if isinstance(row, JournalDamage):
                first = 0  # a damaged row may name any file
                break
            if row.file:
                first = row.file
                break
        numbers = data_file_numbers(self.directory)
        gone = [number for number in numbers if number < min(first, self._data.file)]
        for number in gone:
            self._disk.delete(data_file(self.directory, number))
        return bool(gone)

    def _delete_snapshots(self) -> None:
        """Delete all snapshots but the last one."""
        for number in snapshot_numbers(self.directory):
            if self._snapshot is None or number != self._snapshot.file:
                self._disk.delete(snapshot_file(self.directory, number))

    def _check_place(self) -> None:
        """Raise JournalFull if a restart would not find what is stored now."""
        self._lock.check()
        if not self._data.is_there():
            raise JournalFull(
                f"{self._data.path}: was deleted or replaced: put it back, or start again"
            )

    def _everything(self) -> list[Row]:
        """Return what a new data file begins with."""
        snapshot = [] if self._snapshot is None else [self._snapshot]
        return [*self._producers.values(), *snapshot]

    def checkpoint(self) -> None:
        """Copy SQLite's log into the index if it is long; call it now and then, when idle.

        This takes milliseconds, which should not delay an answer.
        """
        with self._working():
            self._index.checkpoint(self._sizes.checkpoint_rows)

    def forget(self, producers: Iterable[str]) -> list[str]:
        """Forget those producers that have no retained record; return them."""
        with self._working():
            names = {name.encode() for name in producers}
            rows = [row for name in names if (row := self._producers.get(name))]
            rows = [row for row in rows if not self._index.has_records_of(row.name)]
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
            number = max([0, *snapshot_numbers(self.directory)]) + 1
            row = write_snapshot(self._disk, self.directory, number, snapshot, synced=self._synced)
            with self._one:
                self._commit(self._state, [row])
                self._snapshot = row
            self._delete_snapshots()

    def expire(self, now: int) -> int:
        """Delete the oldest records beyond the limits, a limited number per call; return how many.

        now: nanoseconds since 1970. Records after the last snapshot stay; without one, all do.
        """
        with self._working():
            before = self._state
            oldest, kept = self._expired(now)
            if oldest > before.oldest:
                self._commit(before._replace(oldest=oldest, bytes=kept))
                self._delete_data_files(self._state)
                self._index.checkpoint(self._sizes.checkpoint_rows)
            return oldest - before.oldest

    def _expired(self, now: int) -> tuple[int, int]:
        """Return which record is the oldest within the limits, and the bytes of it and later ones.

        A limit of 0 is none.
        """
        state, snapshot = self._state, self._snapshot
        oldest, kept = state.oldest, state.bytes
        if not snapshot or not snapshot.file or not (self._keep_bytes or self._keep_hours):
            return oldest, kept
        for row in self._index.records(oldest - 1, min(oldest - 1 + _AT_ONCE, snapshot.at)):
            # nothing is known about it, so it expires with the oldest
            if isinstance(row, JournalDamage):
                oldest += 1
                continue
            too_old = self._keep_hours and row.time < now - int(self._keep_hours * _HOUR)
            if not too_old and not (self._keep_bytes and kept > self._keep_bytes):
                break
            oldest, kept = row.at + 1, max(0, kept - row.size - len(row.meta))
        return oldest, kept

    def close(self) -> None:
        """Close the journal and release the directory."""
        with self._closing:
            if self._failure is None:
                self._index.checkpoint(0)

    @contextmanager
    def _working(self, *, alone: bool = True) -> Iterator[None]:
        """Raise if a failure has occurred before; remember one that occurs now."""
        if self._failure is not None:
            raise JournalFailed(self._failure)
        try:
            with self._one if alone else nullcontext():
                yield
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
