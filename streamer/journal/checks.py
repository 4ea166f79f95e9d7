"""Find what is damaged in a journal, and continue without it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from streamer.journal.data_files import HEADER_BYTES, DataReader, data_file, data_file_numbers
from streamer.journal.index_tables import ProducerRow, RecordRow, State, pack_lengths, row_checksum
from streamer.journal.journal_errors import JournalDamage
from streamer.journal.reading import RecordReader
from streamer.journal.record import LOST
from streamer.journal.record_index import Index
from streamer.journal.sizes import Sizes
from streamer.journal.stored_snapshots import read_snapshot
from streamer.protocol.checksums import crc32c

_ALWAYS_CHECKED = 32 << 20
"""SQLite checks an index up to this size at each start, a larger one only in ``verify``."""


class Checked:
    """Checks a journal against its checksums."""

    def __init__(self, index: Index, reader: RecordReader, directory: Path, sizes: Sizes) -> None:
        self._index, self._reader = index, reader
        self._directory, self._sizes = directory, sizes

    def damages(self, *, everything: bool) -> Iterator[JournalDamage]:
        """Yield the damage that would stop recovery, or ``everything``; nothing if intact.

        Raises JournalDamage if the state itself cannot be read.
        """
        state = self._index.state()
        if everything or self._index.file_bytes() <= _ALWAYS_CHECKED:
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
        yield from self._lost_groups(state)

    def mend(self) -> list[JournalDamage]:
        """Give up everything that is damaged, for good; return what that was.

        A damaged record keeps its number. For records and snapshots, what the index knows of them
        is kept; a damaged producer is rebuilt from its records. If nothing tells how far batches
        had got, they continue under a new stream: no number is used twice within a stream. Raises
        JournalDamage if the index itself is beyond repair.
        """
        if found := list(self.damages(everything=True)):
            with self._index.transaction():
                self._give_up()
            if left := list(self.damages(everything=True)):
                problem = (
                    f"{left[0].problem}, and cannot be repaired: begin with an empty directory"
                )
                raise JournalDamage(problem, file=left[0].file, offset=left[0].offset)
        return found

    def _give_up(self) -> None:
        index, state = self._index, self._index.state()
        producers = self._known_producers(state)
        index.clear("producers")
        index.put(*producers)
        snapshot = self._give_up_snapshot()
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
                index.put(row)
            kept += row.size + len(row.meta) if row is not None else 0
        state = state._replace(
            bytes=kept, producers=len(producers), digest=producers_digest(producers)
        )
        if not known or list(self._lost_groups(state)):
            state = state._replace(stream=os.urandom(8), seal=os.urandom(16))
        index.put(state)
        index.rebuild_keys()

    def _give_up_snapshot(self) -> int:
        """Give up a damaged snapshot; return the record up to which something is known."""
        try:
            row = self._index.snapshot()
        except JournalDamage:
            self._index.clear("snapshots")
            return 0
        if row is None:
            return 0
        try:
            read_snapshot(self._directory, row)
        except JournalDamage:
            self._index.put(row._replace(file=0, lengths=pack_lengths([]), sum=crc32c([])))
        return row.at

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

    def _lost_groups(self, state: State) -> Iterator[JournalDamage]:
        """Yield damage if a group's header proves that the index once went further."""
        files = DataReader(self._directory)
        places = [(state.file, self._sizes.page_after(state.end))] if state.file else []
        places += [(number, 0) for number in data_file_numbers(self._directory)]
        try:
            for file, offset in places:
                group = files.group(state.seal, file, offset)
                if group is None or file < state.file:
                    continue
                if group.first == state.head + 1:  # this group may never have been committed
                    behind = offset + HEADER_BYTES + group.bytes
                    places.append((file, self._sizes.page_after(behind)))
                elif group.first > state.head:
                    problem = f"the index ends at {state.head}, but {group.first - 1} was stored"
                    path = str(data_file(self._directory, file))
                    yield JournalDamage(problem, file=path, offset=offset, record=state.head + 1)
                    return
        finally:
            files.close()


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
