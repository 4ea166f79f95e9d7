"""The journal of one daemon: its only writer.

Bytes go to data files, their whole meaning to the index, in this order: write the data, sync it,
commit the index. A name in the directory is synced before the index speaks of it. What ``append``
returned from survives a power cut with durability ``fsync``, and a kill with ``os``.
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
    """Made by ``Journal.open``. One thread appends; another may store a snapshot meanwhile.

    accepted: what ``accept_loss`` gave up. After JournalFailed nothing more can be stored.
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
        """Take a directory, made if there is none, and begin a new epoch in it.

        identity: what the records mean, words like ``name=value`` in UTF-8; refused if another one
        is stored. keep_bytes, keep_hours: for ``expire``, 0 for no limit. Raises JournalInUse,
        JournalFull, JournalDamage for damage in what recovery needs (unless ``accept_loss``), and
        JournalError for a directory or a format that is not ours.
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
        # this commit is synced, and with it what an owner that was killed had committed
        state = state._replace(epoch=state.epoch + 1, synced=int(self._synced))
        with index.transaction():
            index.put(state)
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
        """What was last received under each name; retention takes nothing away."""
        return [
            Received(row.name.decode(), row.epoch, row.sequence, row.mark, row.time)
            for row in self._producers.values()
        ]

    def content(self, producer: str, epoch: int, sequence: int) -> int | None:
        """The key's ``content`` of a stored batch; None if its record is no longer kept."""
        row = self._opened.key(producer.encode(), epoch, sequence)
        return None if row is None else row.content

    def snapshot(self) -> Snapshot | None:
        """The last snapshot."""
        row = self._opened.snapshot()
        return None if row is None else read_snapshot(self._directory, row)

    def records(self, after: int, until: int | None = None) -> Iterator[Record]:
        """Records with numbers in (after, until], ascending; ``until``: the head of now.

        JournalDamage names the place of one that is not what was stored. JournalExpired: some of
        those asked for are no longer kept.
        """
        until = self.head if until is None else min(until, self.head)
        return self._reader.records(after, until, lambda: self.oldest)

    def about(self, at: int) -> Iterator[Record | Outline]:
        """The records about record ``at``, ascending, as those of ``history``."""
        return self._reader.about(at)

    def history(self, after: int, until: int) -> Iterator[Record | Outline]:
        """As ``records``, and in the place of each that was given up what is known of it."""
        return self._reader.history(after, until, lambda: self.oldest)

    def skim(self, after: int, until: int, kind: str) -> Iterator[Record | Outline | Skimmed]:
        """As ``history``, but nothing is read of records of this kind except their rows."""
        return self._reader.skim(after, until, kind, lambda: self.oldest)

    def verify(self) -> list[JournalDamage]:
        """Everything that is damaged; reads all that is stored."""
        checked = Checked(self._opened, self._reader, self._directory, self._sizes)
        return list(checked.damages(everything=True))

    def usage(self) -> Usage:
        """How much is kept; JournalUnread."""
        disk = 0
        try:
            paths = list(self._directory.iterdir())
        except OSError as error:
            raise unread(self._directory, error) from error
        for path in paths:
            # another thread may have replaced a snapshot meanwhile
            with suppress(FileNotFoundError):
                disk += path.stat().st_blocks * 512
        return Usage(self._state.bytes, disk, self.oldest, self.head)

    # ---- storing ----------------------------------------------------------------------------

    def append(self, entries: Sequence[Record | Begun]) -> None:
        """Store a group of records, and epochs of producers in their order: all of it, or nothing.

        JournalFull: nothing of it is stored, and it may be tried again. JournalFailed: it may be
        stored or not; no other call is of use. ValueError: numbers or keys do not follow.
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
            with index.transaction():
                index.put(*rows, *producers.values(), state)
            if records:
                self._data.taken(written.end)
            self._state = state
            self._producers.update(producers)

    def checkpoint(self) -> None:
        """Copy SQLite's log into the index if it is long: now and then, while nobody waits.

        The disk takes milliseconds for it, which no answer needs.
        """
        with self._working() as index:
            index.checkpoint(self._sizes.checkpoint_pages)

    def forget(self, producers: Iterable[str]) -> list[str]:
        """Forget those producers of whom no record is kept; returns them."""
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
        """Store the state after record ``at`` in the place of the snapshot before.

        JournalFull leaves the one before. ValueError: ``at`` is not stored, or not later.
        """
        before = self._snapshot
        if at > self.head or (before is not None and at < before.at):
            message = f"a snapshot at {at}: head is {self.head}, the last is {before and before.at}"
            raise ValueError(message)
        with self._working(alone=False) as index:
            snapshot = Snapshot(at, meta, tuple(map(flat, frames)))
            number = max([0, *snapshot_numbers(self._directory)]) + 1
            row = write_snapshot(self._disk, self._directory, number, snapshot, synced=self._synced)
            with index.transaction():
                index.put(row)
            self._snapshot = row
            delete_snapshots(self._disk, self._directory, row)

    def expire(self, now: int) -> int:
        """Let go of the oldest records beyond the limits; returns how many, some at a call.

        now: nanoseconds since 1970. Records after the last snapshot stay, without one all do.
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
        """Give the directory back."""
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
        """The index to store in, unless something has failed; remembers what fails."""
        if self._failure is not None:
            raise JournalFailed(self._failure)
        try:
            with self._one if alone else nullcontext():
                yield self._opened
        except JournalFailed as error:
            self._failure = str(error)
            raise
        except JournalDamage as error:
            self._failure = str(error)
            raise JournalFailed(self._failure) from error

    def _followers(self, entries: Sequence[Record | Begun]) -> dict[bytes, ProducerRow]:
        """Rows of the producers after these entries; ValueError if something does not follow."""
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
