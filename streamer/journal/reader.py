"""Read committed records of a journal, also from another process while its owner writes it."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from streamer.journal.data_files import DataReader, SnapshotFile
from streamer.journal.record import JournalDamage, JournalError, JournalExpired, Record
from streamer.journal.record_index import NAME, Index, SnapshotRow, State


class JournalView:
    """The part of a journal that its owner and its other readers can read."""

    directory: Path
    _index: Index
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

    def records(self, after: int, until: int | None = None) -> Iterator[Record]:
        """Yield records as ``history`` does, except those that were given up."""
        return (record for record in self.history(after, until) if not record.lost)

    def history(
        self, after: int, until: int | None = None, *, skimmed: str = ""
    ) -> Iterator[Record]:
        """Yield records with numbers in (after, until], ascending; ``until``: the current head.

        skimmed: a kind whose frames are not read. Raises JournalDamage, with its place, for a
        record that has changed, and JournalExpired if some of them are no longer retained.
        """
        until = self.head if until is None else min(until, self.head)
        self._check_kept(after + 1)
        # a reader of its own, as threads may read concurrently
        with closing(DataReader(self.directory)) as files:
            for row in self._index.records(after, until):
                try:
                    record = files.record(row, frames=row.kind != skimmed.encode())
                except JournalDamage as damage:
                    self._check_kept(damage.record or after + 1)  # it may have expired meanwhile
                    raise
                yield record

    def outlines(self, after: int) -> Iterator[Record]:
        """Return records without their frames, including those that were given up.

        Records whose rows are damaged, or that are no longer retained, are omitted.
        """
        files = DataReader(self.directory)
        rows = self._index.records(after, self.head)
        return (files.record(row, frames=False) for row in rows if row.file >= 0)

    def about(self, at: int) -> Iterator[Record]:
        """Yield records about record ``at``, ascending, as ``history`` does."""
        with closing(DataReader(self.directory)) as files:
            for row in self._index.about(at):
                yield files.record(row)

    def _check_kept(self, at: int) -> None:
        if at < (first := self._index.state().oldest):
            raise JournalExpired(
                f"{self.directory}: record {at} is no longer kept: begin with {first}", first
            )


class JournalReader(JournalView):
    """Properties are as of the last ``refresh``."""

    def __init__(self, directory: str | Path) -> None:
        """Open a journal; JournalError if there is none, JournalDamage if it cannot be read."""
        self.directory = Path(directory)
        if not (self.directory / NAME).exists():
            raise JournalError(f"{directory}: there is no journal: start the daemon that writes it")
        self._index = Index(self.directory)
        try:
            if self._index.empty():
                raise JournalError(f"{directory}: the journal is being made: try again")
            self.refresh()
        except BaseException:
            self.close()
            raise

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

    def close(self) -> None:
        """Close all files."""
        self._index.close()
