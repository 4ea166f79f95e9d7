"""Hits of patterns in texts: the rows of ``streamer asm`` and ``streamer hamming``.

Solvers fill columns (structure of arrays). The command line prints a table with names; the Python
API returns one structured array, rows of 32 bytes (FIELDS) in four words of 64 bits:

    text and the low half of start | its high half and the low half of end | the high half of end
    and distance | strand and pattern

If only end and distance vary, as for one pattern on one strand, eight rows are made at once and
written with non-temporal stores: cache lines written whole need not be read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numpy.typing import NDArray

from streamer.output.text_table import NULL, Column, Labels, Table
from streamer.output.text_table import texts as own_texts
from trie.cpu import array_pool, llvm
from trie.cpu.jit import njit
from trie.cpu.threads import run_all
from trie.strands import SIGNS

EIGHT = 8  # rows that ``_eight_rows`` writes
_LINE = 64
_CODE_POINTS = np.array([ord("+"), ord("-")], dtype=np.uint64)


def fill(
    words: NDArray[np.uint64],
    text: NDArray[np.int32],
    start: NDArray[np.int64],
    end: NDArray[np.int64],
    distance: NDArray[np.int32],
    strand: NDArray[np.uint8],
    pattern: NDArray[np.int32],
) -> None:
    """Write all rows, words uint64[rows, 4]; a column may have one value for all."""
    columns = (text, start, end, distance, strand, pattern)
    rows = len(words)
    own = [column.size == rows for column in columns]
    plain = end.dtype == np.int64 and distance.dtype == np.int32 and words.ctypes.data % 32 == 0
    if rows > EIGHT and own == [False, False, True, True, False, False] and plain:
        # rows before the first cache line and after the last eight are written separately
        first = words.ctypes.data // 32 % 2
        stop = first + (rows - first) // EIGHT * EIGHT
        for low, high, write in (
            (0, first, _fill),
            (first, stop, _fill_alike),
            (stop, rows, _fill),
        ):
            write(words[low:high], text, start, end[low:high], distance[low:high], strand, pattern)
        return
    _fill(words, *columns)


@njit(cache=True, nogil=True)
def _fill(words, text, start, end, distance, strand, pattern):
    """Write rows of FIELDS as four words of 64 bits each; a column may have one value for all."""
    low = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    # masks that map a row's number to the place in a column
    of_text, of_start, of_end = _mask(text, words), _mask(start, words), _mask(end, words)
    of_distance, of_strand = _mask(distance, words), _mask(strand, words)
    of_pattern = _mask(pattern, words)
    for i in range(np.uint64(words.shape[0])):
        begin = np.uint64(start[i & of_start])
        stop = np.uint64(end[i & of_end])
        sign = _CODE_POINTS[np.uint64(strand[i & of_strand])]
        words[i, 0] = np.uint64(text[i & of_text]) & low | begin << half
        words[i, 1] = begin >> half | stop << half
        words[i, 2] = stop >> half | np.uint64(distance[i & of_distance]) << half
        words[i, 3] = sign | np.uint64(pattern[i & of_pattern]) << half


@njit(cache=True, nogil=True)
def _mask(column, words):
    return np.uint64(0) - np.uint64(column.size == words.shape[0])


@llvm.instruction(
    types.void, None, llvm.INDEX, types.uint64, types.uint64, types.uint64, None, None
)
def _eight_rows(
    builder: Any, words: Any, row: Any, first: Any, high: Any, last: Any, end: Any, distance: Any
) -> None:
    """Write eight rows from ``row`` on, words uint64[4 * rows].

    first, last: their first and last word. high: the low half of the second.
    """
    half = llvm.constant(llvm.WORDS8, 32)
    ends = llvm.load(builder, end, row)
    distances = builder.zext(
        llvm.load(builder, distance, row, ir.VectorType(llvm.I32, EIGHT)), llvm.WORDS8
    )
    second = builder.or_(builder.shl(ends, half), llvm.spread(builder, high, llvm.WORDS8))
    third = builder.or_(builder.lshr(ends, half), builder.shl(distances, half))
    # lanes of (first, last)
    frame = llvm.shuffle(
        builder,
        llvm.spread(builder, first, llvm.WORDS8),
        llvm.spread(builder, last, llvm.WORDS8),
        [0, 0, EIGHT, EIGHT] * 2,
    )
    whole = builder.module.add_metadata([llvm.I32(1)])
    for pair in range(EIGHT // 2):
        even, odd = 2 * pair, 2 * pair + 1
        # lanes of (second, third), then in a second step those of the frame
        places = [even, even, EIGHT + even, even, odd, odd, EIGHT + odd, odd]
        inner = llvm.shuffle(builder, second, third, places)
        rows = llvm.shuffle(builder, frame, inner, [0, 9, 10, 3, 4, 13, 14, 7])
        to = builder.add(builder.mul(row, llvm.I64(4)), llvm.I64(EIGHT * pair))
        stored = builder.store(rows, llvm.element(builder, words, to, llvm.WORDS8), align=_LINE)
        stored.set_metadata("nontemporal", whole)


@njit(cache=True, nogil=True)
def _fill_alike(words, text, start, end, distance, strand, pattern):
    """Like ``_fill`` if only end and distance vary: a multiple of eight rows, line-aligned."""
    low = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    begin = np.uint64(start[0])
    first = np.uint64(text[0]) & low | begin << half
    last = _CODE_POINTS[strand[0]] | np.uint64(pattern[0]) << half
    flat = words.reshape(words.size)
    for row in range(0, end.size, EIGHT):
        _eight_rows(flat, row, first, begin >> half, last, end, distance)


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
    return Hits(**columns, cigar=[text for cigar in cigars for text in cigar] if cigars else None)
