"""Convert columns of hits to rows of 32 bytes (``hits.FIELDS``): four words of 64 bits:

    text and the low half of start | its high half and the low half of end | the high half of end
    and distance | strand and pattern

If only end and distance vary, as for one pattern on one strand, eight rows are made at once and
written with non-temporal stores: cache lines written whole need not be read.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numpy.typing import NDArray

from trie.cpu.jit import njit
from trie.cpu.llvm import (
    I32,
    I64,
    INDEX,
    WORDS8,
    constant,
    element,
    instruction,
    load,
    shuffle,
    spread,
)

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


@instruction(types.void, None, INDEX, types.uint64, types.uint64, types.uint64, None, None)
def _eight_rows(
    builder: Any, words: Any, row: Any, first: Any, high: Any, last: Any, end: Any, distance: Any
) -> None:
    """Write eight rows from ``row`` on, words uint64[4 * rows].

    first, last: their first and last word. high: the low half of the second.
    """
    half = constant(WORDS8, 32)
    ends = load(builder, end, row)
    found = builder.zext(load(builder, distance, row, ir.VectorType(I32, EIGHT)), WORDS8)
    second = builder.or_(builder.shl(ends, half), spread(builder, high, WORDS8))
    third = builder.or_(builder.lshr(ends, half), builder.shl(found, half))
    # lanes of (first, last)
    frame = shuffle(
        builder,
        spread(builder, first, WORDS8),
        spread(builder, last, WORDS8),
        [0, 0, EIGHT, EIGHT] * 2,
    )
    whole = builder.module.add_metadata([I32(1)])
    for pair in range(EIGHT // 2):
        one, two = 2 * pair, 2 * pair + 1
        # lanes of (second, third), then in a second step those of the frame
        places = [one, one, EIGHT + one, one, two, two, EIGHT + two, two]
        inner = shuffle(builder, second, third, places)
        rows = shuffle(builder, frame, inner, [0, 9, 10, 3, 4, 13, 14, 7])
        to = builder.add(builder.mul(row, I64(4)), I64(EIGHT * pair))
        stored = builder.store(rows, element(builder, words, to, WORDS8), align=_LINE)
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
