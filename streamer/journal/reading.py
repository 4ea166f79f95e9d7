"""What both a journal's owner and its other readers can read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from streamer.journal.data_files import DataReader
from streamer.journal.index_tables import RecordRow, State, lost
from streamer.journal.journal_errors import JournalDamage, JournalExpired
from streamer.journal.record import Key, Outline, Record, Skimmed
from streamer.journal.record_index import Index


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
            message = f"{self._directory}: record {at} is no longer kept: begin with {first}"
            raise JournalExpired(message, first)


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
