"""Dynamic programming: the table of rules R1-R3, Hirschberg's row (Listing 1) and division (Listing
2).

The paper's methods for small inputs, and the baseline of the faster ones. Lengths are int32. A cell
costs a comparison, a maximum and two loads.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamer.batch.lcs.symbols import OnCells, Pair, Solution
from trie.cpu.jit import njit

MOST_CELLS = 1 << 30  # cells of the largest table that is stored whole, 4 bytes each

SHOWN_CELLS = 1 << 29
"""Cells of one call, about half a second: then progress is reported and interrupts are seen."""


@njit(cache=True, nogil=True)
def more_rows(a, row, rows, b, column, columns, backward, lengths):
    """Listing 1, more rows: lengths[j] is the length for the rows so far and the first j columns.

    lengths: int32[columns + 1], 0 before the first row. ``backward`` is llcs' of section 3.1: rows
    and columns are taken from their ends, nothing is reversed.
    """
    step = -1 if backward else 1
    first_row = row + rows - 1 if backward else row
    first_column = column + columns - 1 if backward else column
    for i in range(rows):
        symbol = a[first_row + step * i]
        diagonal = np.int32(0)
        left = np.int32(0)
        at = first_column
        for j in range(1, columns + 1):
            up = lengths[j]
            left = diagonal + np.int32(1) if symbol == b[at] else max(left, up)
            at += step
            diagonal = up
            lengths[j] = left


def length(pair: Pair, on_cells: OnCells) -> int:
    """Listing 1 over all rows."""
    columns = slice(0, pair.b.size)
    return int(_row_of(pair, 0, pair.a.size, False, columns, on_cells)[-1])


def _row_of(
    pair: Pair, row: int, rows: int, backward: bool, columns: slice, on_cells: OnCells
) -> NDArray[np.int32]:
    """The lengths for all the rows, some rows a call."""
    column, count = columns.start, columns.stop - columns.start
    lengths = np.zeros(count + 1, dtype=np.int32)
    each = max(1, SHOWN_CELLS // max(1, count))
    for done in range(0, rows, each):
        part = min(each, rows - done)
        first = row + rows - done - part if backward else row + done
        more_rows(pair.a, first, part, pair.b, column, count, backward, lengths)
        on_cells(part * count)
    return lengths


def middle(pair: Pair, rows: slice, columns: slice, on_cells: OnCells) -> tuple[int, int]:
    """Lines 14-18 of Listing 2: (the least column at which to cut, the length)."""
    half = (rows.start + rows.stop) // 2
    first = _row_of(pair, rows.start, half - rows.start, False, columns, on_cells)
    last = _row_of(pair, half, rows.stop - half, True, columns, on_cells)
    cut, most = _best_cut(first, last, columns.stop - columns.start)
    return int(cut), int(most)


def divided(solution: Solution, on_cells: OnCells) -> None:
    """Listing 2 over the whole table, which is cut here until a part is one call's work."""
    pair = solution.pair
    tables = [(slice(0, pair.a.size), slice(0, pair.b.size))]
    while tables:
        rows, columns = tables.pop()
        height, width = rows.stop - rows.start, columns.stop - columns.start
        if height < 2 or height * width <= SHOWN_CELLS // 2:
            bounds = (rows.start, rows.stop, columns.start, columns.stop)
            hirschberg(*solution.arrays, *(np.array([x], dtype=np.int64) for x in bounds))
            on_cells(2 * height * width)
            continue
        cut = columns.start + middle(pair, rows, columns, on_cells)[0]
        half = (rows.start + rows.stop) // 2
        tables.append((slice(rows.start, half), slice(columns.start, cut)))
        tables.append((slice(half, rows.stop), slice(cut, columns.stop)))


@njit(cache=True, nogil=True)
def table(a, b, in_a, in_b):
    """Rules R1-R3 over the whole table, int32[(m + 1) (n + 1)], and the way back through it."""
    m = a.size
    n = b.size
    cells = np.zeros((m + 1, n + 1), dtype=np.int32)
    for i in range(1, m + 1):
        for j in range(1, n + 1):
            if a[i - 1] == b[j - 1]:
                cells[i, j] = cells[i - 1, j - 1] + 1
            else:
                cells[i, j] = max(cells[i, j - 1], cells[i - 1, j])
    i = m
    j = n
    while i > 0 and j > 0:
        if a[i - 1] == b[j - 1]:
            i -= 1
            j -= 1
            in_a[i] = True
            in_b[j] = True
        elif cells[i - 1, j] >= cells[i, j - 1]:
            i -= 1
        else:
            j -= 1


@njit(cache=True, nogil=True)
def hirschberg(a, b, in_a, in_b, row, row_end, column, column_end):
    """Listing 2 on each of some tables (int64[tables] bounds); a stack replaces the recursion."""
    for t in range(row.size):
        _hirschberg(a[row[t] : row_end[t]], b[column[t] : column_end[t]],
                    in_a[row[t] : row_end[t]], in_b[column[t] : column_end[t]])  # fmt: skip


@njit(cache=True, nogil=True)
def _hirschberg(a, b, in_a, in_b):
    first = np.empty(b.size + 1, dtype=np.int32)
    last = np.empty(b.size + 1, dtype=np.int32)
    # one half is taken up at once, so that the stack holds a table a level
    stack = np.empty((70, 4), dtype=np.int64)
    stack[0] = (0, a.size, 0, b.size)
    depth = 1
    while depth:
        depth -= 1
        row, row_end, column, column_end = stack[depth]
        rows = row_end - row
        columns = column_end - column
        if rows == 0 or columns == 0:
            continue
        if rows == 1:
            for j in range(column, column_end):
                if a[row] == b[j]:
                    in_a[row] = True
                    in_b[j] = True
                    break
            continue
        half = rows // 2
        first[: columns + 1] = 0
        last[: columns + 1] = 0
        more_rows(a, row, half, b, column, columns, False, first)
        more_rows(a, row + half, rows - half, b, column, columns, True, last)
        cut, _ = _best_cut(first, last, columns)
        stack[depth] = (row, row + half, column, column + cut)
        stack[depth + 1] = (row + half, row_end, column + cut, column_end)
        depth += 2


@njit(cache=True, nogil=True)
def _best_cut(first, last, columns):
    cut = 0
    most = np.int32(-1)
    for j in range(columns + 1):
        both = first[j] + last[columns - j]
        if both > most:
            most = both
            cut = j
    return cut, most
