"""Dynamic programming: rules R1-R3, Hirschberg's row (Listing 1) and division (Listing 2).

The paper's methods for small inputs, and the baseline for the faster ones. Lengths are int32. A
cell costs a comparison, a maximum and two loads.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamer.batch.lcs.passes import HostPool, Part, Passes
from streamer.batch.lcs.symbols import Flags, OnCells, Pair, unreported
from streamer.batch.records import Codes
from trie.cpu.jit import njit

MOST_CELLS = 1 << 30  # cells of the largest table stored whole, 4 bytes each

SHOWN_CELLS = 1 << 29
"""Cells per call, about half a second; progress and interrupts are handled between calls."""


@njit(cache=True, nogil=True)
def more_rows(a, row, rows, b, column, columns, backward, lengths):
    """Continue Listing 1 by more rows: lengths[j] is the length for all rows so far and j columns.

    lengths: int32[columns + 1], 0 before the first row. ``backward`` is llcs' of section 3.1: rows
    and columns are read from their ends, without reversing.
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


class RowByRow(HostPool):
    """Runs passes one by one by Listing 1 (a ``passes.Processor``)."""

    def __init__(self, pair: Pair, on_cells: OnCells = unreported) -> None:
        super().__init__(threads=1)
        self.pair = pair
        self._on_cells = on_cells

    def sweep(self, passes: Passes) -> None:
        """Run the passes; the pool then holds their results."""
        for part, at in zip(passes.parts(), passes.at.tolist(), strict=True):
            found = self.grown(part)
            self.pool[at : at + found.size] = found

    def grown(self, part: Part) -> NDArray[np.uint32]:
        """Return the result of a pass: a bit per row, set where the length grows by it."""
        lengths = np.zeros(part.rows + 1, dtype=np.int32)
        each = max(1, SHOWN_CELLS // part.rows)
        for done in range(0, part.columns, each):
            some = min(each, part.columns - done)
            first = part.column + (part.columns - done - some if part.backward else done)
            # rows and columns are swapped, because lengths by row are wanted
            more_rows(
                self.pair.b, first, some, self.pair.a, part.row, part.rows, part.backward, lengths
            )
            self._on_cells(some * part.rows)
        packed = np.packbits(np.diff(lengths) > 0, bitorder="little")
        out = np.zeros(4 * -(-part.rows // 32), dtype=np.uint8)
        out[: packed.size] = packed
        return out.view(np.uint32)


def table(a: Codes, b: Codes, in_a: Flags, in_b: Flags, on_cells: OnCells) -> None:
    """Fill the whole table by rules R1-R3, int32[(m + 1) (n + 1)], and trace back through it."""
    cells = np.zeros((a.size + 1, b.size + 1), dtype=np.int32)
    # fresh memory takes longer than the cells
    each = max(1, SHOWN_CELLS // 8 // b.size)
    for first in range(0, a.size, each):
        some = min(each, a.size - first)
        _fill(a, b, cells, first, some)
        on_cells(some * b.size)
    _trace_back(a, b, cells, in_a, in_b)


@njit(cache=True, nogil=True)
def _fill(a, b, cells, first, rows):
    """Fill the rows of some symbols of a."""
    for i in range(first + 1, first + rows + 1):
        for j in range(1, b.size + 1):
            if a[i - 1] == b[j - 1]:
                cells[i, j] = cells[i - 1, j - 1] + 1
            else:
                cells[i, j] = max(cells[i, j - 1], cells[i - 1, j])


@njit(cache=True, nogil=True)
def _trace_back(a, b, cells, in_a, in_b):
    """Set the flags of a longest path through the table."""
    i = a.size
    j = b.size
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
    """Run Listing 2 on several tables (int64[tables] bounds); a stack replaces the recursion."""
    for t in range(row.size):
        _hirschberg(a[row[t] : row_end[t]], b[column[t] : column_end[t]],
                    in_a[row[t] : row_end[t]], in_b[column[t] : column_end[t]])  # fmt: skip


@njit(cache=True, nogil=True)
def _hirschberg(a, b, in_a, in_b):
    first = np.empty(b.size + 1, dtype=np.int32)
    last = np.empty(b.size + 1, dtype=np.int32)
    # one half is processed immediately, so the stack holds one table per level
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
        cut = _best_cut(first, last, columns)
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
    return cut
