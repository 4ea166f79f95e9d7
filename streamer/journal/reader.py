"""Read committed records of a journal from another process while its owner writes it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from streamer.journal.index_tables import RecordRow, SnapshotRow, lost
from streamer.journal.journal_errors import JournalError
from streamer.journal.reading import JournalView, RecordReader
from streamer.journal.record import Outline, Record
from streamer.journal.record_index import NAME, Index
from streamer.journal.stored_snapshots import SnapshotFile


class JournalReader(JournalView):
    """Created by ``JournalReader.open``. Properties are as of the last ``refresh``."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        if not (directory / NAME).exists():
            message = f"{directory}: there is no journal: start the daemon that writes it"
            raise JournalError(message)
        self._index = Index(directory)
        self._reader = RecordReader(self._index, directory)
        try:
            if self._index.empty():
                message = f"{directory}: the journal is being made: try again"
                raise JournalError(message)
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
