"""Find what is damaged in a journal, and continue without it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from streamer.journal.index_tables import (
    ProducerRow,
    RecordRow,
    Row,
    State,
    pack_lengths,
    row_checksum,
)
from streamer.journal.journal_errors import JournalDamage
from streamer.journal.reading import RecordReader
from streamer.journal.record import LOST
from streamer.journal.record_index import Index
from streamer.journal.stored_snapshots import read_snapshot
from streamer.protocol.checksums import crc32c

_ALWAYS_CHECKED = 32 << 20
"""SQLite checks an index up to this size at each start, a larger one only in ``verify``."""


class Checked:
    """Checks a journal against its checksums."""

    def __init__(self, index: Index, directory: Path) -> None:
        self._index, self._directory = index, directory
        self._reader = RecordReader(index, directory)

    def damages(self, *, everything: bool) -> Iterator[JournalDamage]:
        """Yield the damage that would stop recovery, or ``everything``; nothing if intact.

        Raises JournalDamage if the state itself cannot be read.
        """
        state = self._index.state()
        if everything or self._is_small():
            yield from self._index.integrity()
        yield from self._producers(state)
        after = state.oldest - 1
        try:
            if (row := self._index.snapshot()) is not None:
                read_snapshot(self._directory, row)
                after = after if everything or not row.file else max(after, row.at)
        except JournalDamage as damage:
            yield damage
        for _, record in self._reader.checked(after, state.head):
            if isinstance(record, JournalDamage):
                yield record

    def index_damage(self) -> JournalDamage | None:
        """Return damage of the index itself, as far as a start looks for it.

        In a large one, rows that recovery does not need are left to ``verify``.
        """
        try:
            path, state = str(self._index.path), self._index.state()
            if self._is_small():
                for row in self._index.records(state.oldest - 1, state.head):
                    if isinstance(row, JournalDamage):
                        return row
            return next((one for one in self.damages(everything=False) if one.file == path), None)
        except JournalDamage as damage:
            return damage

    def mended(self) -> tuple[list[JournalDamage], State, list[Row]]:
        """Return what is damaged, and the state and the rows that give it up.

        A damaged record keeps its number. For records and snapshots, what the index knows of them
        is kept; a lost producer is rebuilt from its records. If nothing tells how far batches had
        got, they continue under a new stream: no number is used twice within a stream.
        """
        found = list(self.damages(everything=True))
        index, state = self._index, self._index.state()
        if not found:
            return found, state, []
        producers = self._known_producers(state)
        rows: list[Row] = [*producers]
        snapshot, given_up = 0, index.snapshot()
        if given_up is not None:
            snapshot = given_up.at
            try:
                read_snapshot(self._directory, given_up)
            except JournalDamage:
                rows.append(given_up._replace(file=0, lengths=pack_lengths([]), sum=crc32c([])))
        # whether we know, up to the current record, how far batches had got
        known = snapshot > 0 or state.oldest == 1
        kept = 0
        for row, record in self._reader.checked(state.oldest - 1, state.head):
            if row is not None:
                known = known or row.producer is not None
            elif isinstance(record, JournalDamage) and (record.record or state.head) > snapshot:
                known = False
            if isinstance(record, JournalDamage) and record.record is not None:
                row = _given_up(record.record, row)
                rows.append(row)
            kept += row.size + len(row.meta) if row is not None else 0
        state = state._replace(
            bytes=kept, producers=len(producers), digest=producers_digest(producers)
        )
        return found, state if known else state._replace(stream=os.urandom(8)), rows

    def _is_small(self) -> bool:
        return self._index.file_bytes() <= _ALWAYS_CHECKED

    def _known_producers(self, state: State) -> list[ProducerRow]:
        """Return the intact rows, and the others as rebuilt from retained records."""
        known = {r.name: r for r in self._index.producers() if isinstance(r, ProducerRow)}
        for row in self._index.records(state.oldest - 1, state.head):
            if not isinstance(row, RecordRow) or row.producer is None:
                continue
            assert row.epoch is not None
            assert row.sequence is not None
            place = row.epoch, row.sequence
            before = known.get(row.producer)
            if before is None or place > before[1:3]:
                known[row.producer] = ProducerRow(row.producer, *place, row.mark or b"", row.time)
        return list(known.values())

    def _producers(self, state: State) -> Iterator[JournalDamage]:
        rows = self._index.producers()
        good = [row for row in rows if isinstance(row, ProducerRow)]
        yield from (row for row in rows if isinstance(row, JournalDamage))
        whole = (len(good), producers_digest(good)) == (state.producers, state.digest)
        if len(good) == len(rows) and not whole:
            yield JournalDamage("a producer is missing", file=str(self._index.path))


def producers_digest(rows: Iterable[ProducerRow]) -> int:
    """Return a checksum over producers: it changes if one changes or vanishes."""
    return sum(row_checksum(ProducerRow, row) for row in rows) & 0xFFFFFFFF


def _given_up(at: int, row: RecordRow | None) -> RecordRow:
    """Return the row of a record that is given up, with what is known from its old row."""
    kind, time, meta = (f" {row.kind.decode()}", row.time, row.meta) if row else ("", 0, b"")
    nothing = None, None, None, None, None
    about = row and row.about
    end = 0, meta, *nothing, about
    return RecordRow(at, (LOST + kind).encode(), time, 0, 0, 0, pack_lengths([]), *end)
