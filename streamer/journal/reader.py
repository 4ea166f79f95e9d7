"""Reads a journal while its owner writes it: another process, committed records only."""

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
    """Made by ``JournalReader.open``. What its properties say is as of the last ``refresh``."""

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
        """Begin to read; JournalError if there is none, JournalDamage if it cannot be read."""
        return cls(Path(directory))

    def refresh(self) -> int:
        """See what was committed until now; returns the head."""
        self._state = self._index.state()
        return self.head

    def snapshot(self) -> SnapshotRow | None:
        """The row of the last snapshot."""
        return self._index.snapshot()

    def open_snapshot(self, row: SnapshotRow) -> SnapshotFile | None:
        """What a row names; None if there is a later snapshot by now, in its place."""
        try:
            return SnapshotFile(self.directory, row)
        except JournalError:
            if self._index.snapshot() == row:
                raise
        return None

    def records(self, after: int, until: int | None = None) -> Iterator[Record]:
        """Records with numbers in (after, until], ascending; ``until``: the head.

        JournalDamage names the place of one that is not what was stored. JournalExpired: some of
        those asked for are no longer kept.
        """
        until = self.head if until is None else min(until, self.head)
        return self._reader.records(after, until, lambda: self._index.state().oldest)

    def outlines(self, after: int, until: int | None = None) -> Iterator[Outline]:
        """Records without their frames, which are not read; also those that were given up.

        Those whose rows are damaged or that are no longer kept are left out.
        """
        until = self.head if until is None else min(until, self.head)
        for row in self._index.records(after, until):
            if isinstance(row, RecordRow):
                yield lost(row) or Outline(row.at, row.kind.decode(), row.meta)

    def close(self) -> None:
        """Close all files."""
        self._index.close()
