"""The journal of one daemon, its only writer.

Bytes go to data files, everything about them to the index, in this order: write the data, sync it,
commit the index. A file name is synced before the index refers to it. Once ``append`` has returned,
its entries survive a power loss with durability ``fsync``, and a kill with ``os``.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Literal

from streamer.journal.checks import Checked, producers_digest
from streamer.journal.data_writer import DataWriter, Written
from streamer.journal.disk import Disk, unread
from streamer.journal.index_tables import ProducerRow, flat, record_row
from streamer.journal.journal_errors import JournalDamage, JournalFailed
from streamer.journal.opening import open_index, own, sync_all
from streamer.journal.reading import JournalView, RecordReader
from streamer.journal.record import (
    Begun,
    Frame,
    Key,
    Outline,
    Received,
    Record,
    Skimmed,
    Snapshot,
    Usage,
)
from streamer.journal.record_index import Index
from streamer.journal.retention import Limits, delete_data_files, delete_snapshots
from streamer.journal.sizes import Sizes
from streamer.journal.stored_snapshots import read_snapshot, snapshot_numbers, write_snapshot

Durability = Literal["fsync", "os"]


class Journal(JournalView):
    """Created by ``Journal.open``. One thread appends; another may store a snapshot concurrently.

    accepted: the damage given up by ``accept_loss``. After JournalFailed, nothing can be stored.
    What meets a damaged index raises JournalDamage and stores nothing.
    """

    def __init__(
        self, directory: Path, *, synced: bool, limits: Limits, sizes: Sizes, disk: Disk
    ) -> None:
        self.accepted: list[JournalDamage] = []
        self._directory, self._disk, self._limits, self._sizes = directory, disk, limits, sizes
        self._synced = synced
        self._failure: str | None = None
        self._one = threading.Lock()
        self._lock = own(disk, directory)
        self._index: Index | None = None
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
        self._index = index = open_index(
            self._disk, self._directory, identity, sizes=self._sizes, synced=self._synced
        )
        self._reader = RecordReader(index, self._directory)
        checked = Checked(index, self._reader, self._directory, self._sizes)
        if accept_loss:
            self.accepted = checked.mend()
        elif found := list(checked.damages(everything=False)):
            raise found[0].of(len(found))
        state = index.state()
        if self._synced and not state.synced:
            sync_all(self._disk, self._directory)
        # this commit is synced, and with it the commits of an owner that was killed
        state = state._replace(epoch=state.epoch + 1, synced=int(self._synced))
        index.commit([state])
        self._state = state
        self._snapshot = index.snapshot()
        self._producers = {
            row.name: row for row in index.producers() if isinstance(row, ProducerRow)
        }
        self._data.start(state.file, state.end)
        delete_data_files(self._disk, self._directory, index, state, state.file)
        delete_snapshots(self._disk, self._directory, self._snapshot)

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
        checked = Checked(self._opened, self._reader, self._directory, self._sizes)
        return list(checked.damages(everything=True))

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
        with self._working() as index:
            state, producers = self._state, self._followers(entries)
            records = [entry for entry in entries if isinstance(entry, Record)]
            group = [tuple(map(flat, record.frames)) for record in records]
            written = Written(state.file, 0, state.end, [])
            if records:
                written = self._data.write(state.seal, state.head + 1, group)
            rows, offset = [], written.offset
            for record, frames, crc in zip(records, group, written.sums, strict=True):
                rows.append(record_row(record, frames, written.file, offset, crc))
                offset += rows[-1].size
            digest = state.digest
            for name, row in producers.items():
                before = self._producers.get(name)
                digest += producers_digest([row]) - producers_digest([before] if before else [])
            state = state._replace(
                head=state.head + len(rows),
                bytes=state.bytes + sum(row.size + len(row.meta) for row in rows),
                file=written.file,
                end=written.end,
                producers=len(self._producers.keys() | producers.keys()),
                digest=digest & 0xFFFFFFFF,
            )
            index.commit([*rows, *producers.values(), state])
            if records:
                self._data.taken(written.end)
            self._state = state
            self._producers.update(producers)

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
            gone = {row.name for row in rows}
            state = self._state._replace(
                producers=len(self._producers) - len(gone),
                digest=self._state.digest - producers_digest(rows) & 0xFFFFFFFF,
            )
            with index.transaction():
                index.delete_producers(gone)
                index.put(state)
            self._state = state
            for name in gone:
                del self._producers[name]
            return [name.decode() for name in gone]

    def put_snapshot(self, at: int, meta: bytes, frames: Sequence[Frame]) -> None:
        """Store the state after record ``at``, replacing the previous snapshot.

        JournalFull keeps the previous one. Raises ValueError if ``at`` is not stored, or not later.
        """
        before = self._snapshot
        if at > self.head or (before is not None and at < before.at):
            message = f"a snapshot at {at}: head is {self.head}, the last is {before and before.at}"
            raise ValueError(message)
        with self._working(alone=False) as index:
            snapshot = Snapshot(at, meta, tuple(map(flat, frames)))
            number = max([0, *snapshot_numbers(self._directory)]) + 1
            row = write_snapshot(self._disk, self._directory, number, snapshot, synced=self._synced)
            index.commit([row])
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
            with index.transaction():
                index.delete_records(state.oldest - 1)
                index.put(state)
            self._state = state
            delete_data_files(self._disk, self._directory, index, state, self._data.file)
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
                    message = f"record {entry.at} where {at} is next"
                    raise ValueError(message)
            if key is None:
                continue
            name = key.producer.encode()
            last = rows.get(name) or self._producers.get(name)
            sequence, mark = (key.sequence, key.mark) if isinstance(key, Key) else (0, None)
            if last is not None and (key.epoch, sequence) <= (last.epoch, last.sequence):
                message = f"behind record {at}: {key} after {last[1:3]}"
                raise ValueError(message)
            if mark is None:
                mark = last.mark if last is not None else b""
            rows[name] = ProducerRow(name, key.epoch, sequence, bytes(mark), entry.time)
        return rows
