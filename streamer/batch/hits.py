"""Hits of patterns in texts: the rows of ``streamer asm`` and ``streamer hamming``.

Solvers fill columns (structure of arrays). The Python API returns them as one structured array; the
command line prints a table with names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.batch.hit_rows import fill
from streamer.output.text_table import NULL, Column, Labels, Table
from streamer.output.text_table import texts as own_texts
from trie.cpu import array_pool
from trie.cpu.threads import run_all
from trie.strands import SIGNS

NO_START = -1

ROWS_A_TABLE = 500_000
"""Rows formatted at a time."""

DTYPES = {
    "text": np.int32,
    "start": np.int64,
    "end": np.int64,
    "distance": np.int32,
    "strand": np.uint8,
    "pattern": np.int32,
}
"""The types of the columns of ``Hits``."""

COLUMNS = tuple(DTYPES)
FIELDS = [(name, "U1" if name == "strand" else dtype) for name, dtype in DTYPES.items()]
"""The structured array's fields; ``cigar`` (object, str) follows in reports that have it."""


@dataclass(frozen=True, slots=True)
class Hits:
    """Equally long columns, ordered by text, end, pattern, strand (``+`` first).

    text int32 and pattern int32: indices. start int64 (NO_START where it was not computed) and end
    int64: half-open. distance int32. strand uint8: 0 is ``+``, 1 is ``-``. cigar: a str each,
    or None. A column that is the same in all rows may be a read-only view of one value.
    """

    text: NDArray[np.int32]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    distance: NDArray[np.int32]
    strand: NDArray[np.uint8]
    pattern: NDArray[np.int32]
    cigar: Sequence[str] | None = None

    def __len__(self) -> int:
        return self.end.size

    def rows(self, first: int, stop: int) -> Hits:
        """Return those rows."""
        part = slice(first, stop)
        columns: dict[str, Any] = {name: getattr(self, name)[part] for name in COLUMNS}
        return Hits(**columns, cigar=None if self.cigar is None else self.cigar[part])

    def structured(self) -> NDArray[np.void]:
        """Return the rows as one structured array (FIELDS)."""
        return structured([self])

    def tables(self, texts: Sequence[str], patterns: Labels) -> Iterator[Table]:
        """Yield tables of a bounded number of rows."""
        for first in range(0, len(self), ROWS_A_TABLE):
            yield self.rows(first, first + ROWS_A_TABLE).table(texts, patterns)

    def table(self, texts: Sequence[str], patterns: Labels) -> Table:
        """Return the rows as users see them: names for indices, null for no start.

        Only the names of texts that have rows are read.
        """
        first, last = (int(self.text[0]), int(self.text[-1])) if len(self) else (0, -1)
        columns: dict[str, Column] = {
            "text": Labels(texts[first : last + 1]).gather(self.text - first),
            "start": np.where(self.start == NO_START, NULL, self.start),
            "end": self.end,
            "distance": self.distance,
            "strand": Labels(SIGNS).gather(self.strand),
            "pattern": patterns.gather(self.pattern),
        }
        if self.cigar is not None:
            columns["cigar"] = own_texts(self.cigar)
        return Table(columns)


def structured(parts: Sequence[Hits], threads: int = 1) -> NDArray[np.void]:
    """Return the rows of all parts, in the order given, as one structured array (FIELDS)."""
    if any(part.cigar is not None for part in parts):
        whole = concatenate(parts)
        rows = np.empty(len(whole), dtype=[*FIELDS, ("cigar", object)])
        for name in ("text", "start", "end", "distance", "pattern"):
            rows[name] = getattr(whole, name)
        rows["strand"] = np.array(SIGNS, dtype="U1")[whole.strand]
        rows["cigar"] = whole.cigar
        return rows
    # not np.empty, which zeroes arrays with a string field
    rows = array_pool.empty(sum(map(len, parts)), FIELDS)
    # row by row: field by field, each cache line would be written six times
    words = rows.view(np.uint64).reshape(-1, rows.itemsize // 8)
    at = 0
    tasks = []
    for part in parts:
        for first in range(0, len(part), _ROWS_A_TASK):
            some = part.rows(first, first + _ROWS_A_TASK)
            columns = [_compact(getattr(some, name)) for name in COLUMNS]
            tasks.append(partial(fill, words[at : at + len(some)], *columns))
            at += len(some)
    run_all(tasks, threads)
    return rows


_ROWS_A_TASK = 1 << 16


def _compact(column: NDArray[Any]) -> NDArray[Any]:
    """Return a column, or the single value of all its rows."""
    if column.size and column.strides == (0,):
        return np.array([column[0]])
    return np.ascontiguousarray(column)


def concatenate(parts: Sequence[Hits]) -> Hits:
    """Concatenate the hits of several texts, in the order given."""
    if len(parts) == 1:
        return parts[0]
    columns: dict[str, Any] = {
        name: np.concatenate([np.empty(0, dtype), *(getattr(part, name) for part in parts)])
        for name, dtype in DTYPES.items()
    }
    cigars = [part.cigar for part in parts if part.cigar is not None]
    return Hits(**columns, cigar=[one for cigar in cigars for one in cigar] if cigars else None)
