"""Read committed records of a journal from another process while its owner writes it.

What both a journal's owner and its other readers can read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from streamer.journal.data_files import DataReader
from streamer.journal.record import (
    JournalDamage,
    JournalError,
    JournalExpired,
    Key,
    Outline,
    Record,
    Skimmed,
)
from streamer.journal.record_index import NAME, Index, RecordRow, SnapshotRow, State, lost
from streamer.journal.stored_snapshots import SnapshotFile


class JournalView:
    """The state of a journal."""

    _state: State

    @property
    def stream(self) -> str:
        """16 hex digits that stay the same as long as numbering continues."""
        return self._state.stream.hex()

    @property
    def identity(self) -> str:
        """The meaning of its records, given by its owner: words like ``name=value``."""
        return self._state.identity.decode(errors="replace")

    @property
    def epoch(self) -> int:
        """How often an owner has opened it, from 1."""
        return self._state.epoch

    @property
    def head(self) -> int:
        """The number of the last record, 0 if there is none."""
        return self._state.head

    @property
    def oldest(self) -> int:
        """The number of the first retained record, ``head + 1`` if there is none."""
        return self._state.oldest


class RecordReader:
    """Reads records of a journal."""

    def __init__(self, index: Index, directory: Path) -> None:
        self._index = index
        self._directory = directory

    def records(self, after: int, until: int, oldest: Callable[[], int]) -> Iterator[Record]:
        """Yield records with numbers in (after, until], ascending, except those given up.

        oldest: returns the first retained record. Raises JournalExpired if some are not retained.
        """
        for record in self.history(after, until, oldest):
            if isinstance(record, Record):
                yield record

    def history(
        self, after: int, until: int, oldest: Callable[[], int]
    ) -> Iterator[Record | Outline]:
        """Like ``records``, with an Outline in place of each record that was given up."""
        self._kept(after + 1, oldest)
        for _, record in self.checked(after, until):
            if isinstance(record, JournalDamage):
                self._kept(record.record or after + 1, oldest)  # it may have expired meanwhile
                raise record
            yield record

    def skim(
        self, after: int, until: int, kind: str, oldest: Callable[[], int]
    ) -> Iterator[Record | Outline | Skimmed]:
        """Like ``history``, but for records of this kind only rows are read."""
        self._kept(after + 1, oldest)
        files = DataReader(self._directory)
        try:
            for row in self._index.records(after, until):
                if isinstance(row, JournalDamage):
                    self._kept(row.record or after + 1, oldest)  # it may have expired meanwhile
                    raise row
                if row.kind == kind.encode():
                    yield Skimmed(row.at, kind, row.meta)
                else:
                    yield lost(row) or _record(row, files)
        finally:
            files.close()

    def about(self, at: int) -> Iterator[Record | Outline]:
        """Yield records about record ``at``, ascending, as in ``history``; raises JournalDamage."""
        files = DataReader(self._directory)
        try:
            for row in self._index.about(at):
                yield lost(row) or _record(row, files)
        finally:
            files.close()

    def checked(
        self, after: int, until: int
    ) -> Iterator[tuple[RecordRow | None, Record | Outline | JournalDamage]]:
        """Yield for each number in (after, until] the row, and the record or its damage."""
        files = DataReader(self._directory)  # a reader of its own, as threads may read concurrently
        try:
            for row in self._index.records(after, until):
                if isinstance(row, JournalDamage):
                    yield None, row
                    continue
                try:
                    yield row, lost(row) or _record(row, files)
                except JournalDamage as damage:
                    yield row, damage
        finally:
            files.close()

    def _kept(self, at: int, oldest: Callable[[], int]) -> None:
        if at < (first := oldest()):
            raise JournalExpired(
                f"{self._directory}: record {at} is no longer kept: begin with {first}", first
            )


def _record(row: RecordRow, files: DataReader) -> Record:
    key = None
    if row.producer is not None:
        assert row.epoch is not None
        assert row.sequence is not None
        assert row.content is not None
        assert row.mark is not None
        key = Key(row.producer.decode(), row.epoch, row.sequence, row.content, row.mark)
    frames = files.frames(row)
    return Record(row.at, row.kind.decode(), row.meta, frames, key, row.time, row.about)


class JournalReader(JournalView):
    """Created by ``JournalReader.open``. Properties are as of the last ``refresh``."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        if not (directory / NAME).exists():
            raise JournalError(f"{directory}: there is no journal: start the daemon that writes it")
        self._index = Index(directory)
        self._reader = RecordReader(self._index, directory)
        try:
            if self._index.empty():
                raise JournalError(f"{directory}: the journal is being made: try again")
            self.refresh()
        except BaseException:
            self.close()
            raise

    @classmethod
    def open(cls, directory: str | Path) -> JournalReader:
        """Open a journal; JournalError if there is none, JournalDamage if it cannot be read."""
        return cls(Path(directory))

    def refresh(self) -> int:
        """Update to what has been committed; return the head."""
        self._state = self._index.state()
        return self.head

    def snapshot(self) -> SnapshotRow | None:
        """Return the row of the last snapshot."""
        return self._index.snapshot()

    def open_snapshot(self, row: SnapshotRow) -> SnapshotFile | None:
        """Open the snapshot of a row; None if a later one has replaced it."""
        try:
            return SnapshotFile(self.directory, row)
        except JournalError:
            if self._index.snapshot() == row:
                raise
        return None

    def records(self, after: int, until: int | None = None) -> Iterator[Record]:
        """Records with numbers in (after, until], ascending; ``until``: the head.

        Raises JournalDamage, with its place, for a record that has changed, and JournalExpired if
        some of the records are no longer retained.
        """
        until = self.head if until is None else min(until, self.head)
        return self._reader.records(after, until, lambda: self._index.state().oldest)

    def outlines(self, after: int, until: int | None = None) -> Iterator[Outline]:
        """Yield records without reading their frames, including those that were given up.

        Records whose rows are damaged, or that are no longer retained, are omitted.
        """
        until = self.head if until is None else min(until, self.head)
        for row in self._index.records(after, until):
            if isinstance(row, RecordRow):
                yield lost(row) or Outline(row.at, row.kind.decode(), row.meta)

    def close(self) -> None:
        """Close all files."""
        self._index.close()
