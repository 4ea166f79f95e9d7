"""The LCS paper's methods as published: baselines for the faster methods.

``bit-parallel`` (seed, Listing 3 with line 12 of Listing 4), a 64-bit word at a time:

    v = (v + (v & m) + carry) | (v & ~m)        m: the rows whose symbol is the column's

v has a 0 where the length grows by that row. Line 13 of Listing 3 confuses B[j] and B[j-1]; Listing
4 is correct. Per word and column: a load of m, 7 operations, a load and a store of v.

``block-step``: Listing 2 on the host, llcs by its size (section 3.5): the GPU computes llcs if the
lengths add up to at least 2,048. Otherwise the CPU does: by dynamic programming for fewer than 96
rows or 256 columns, else by the bit-parallel method.

Dynamic programming: rules R1-R3, Hirschberg's row (Listing 1) and division (Listing 2). A cell
costs a comparison, a maximum and two loads.
"""

import numpy as np
from numpy.typing import NDArray

from streamer.batch.lcs.passes import HostPool, Part, Passes
from streamer.batch.lcs.symbols import Flags, OnCells, Pair, unreported
from streamer.batch.records import Codes
from trie.cpu.jit import njit

LOT_WORDS = 64
"""The fewest words per lot of rows: with fewer, passing on the carries costs more than it gains."""


class BitParallelSweep:
    """A pass in ``lots`` lots of rows for different threads (a ``waves.Sweep``).

    Backward passes read the sequences from their ends (the paper's llcs_bp').
    """

    def __init__(self, pair: Pair, part: Part, lots: int) -> None:
        self._part = part
        self._b = pair.b
        words = -(-part.rows // 64)
        self._matches = np.zeros((pair.symbols, words), dtype=np.uint64)
        _match_vectors(pair.a, part.first_row, part.step, part.rows, self._matches)
        self._v = np.full(words, ~np.uint64(0))
        self._carries = np.zeros(part.columns, dtype=np.uint8)
        self.lots = max(1, min(lots, words // LOT_WORDS))
        self._cuts = [words * i // self.lots for i in range(self.lots + 1)]

    def run(self, lot: int, first: int, stop: int) -> None:
        """Advance a lot of rows over the columns [first, stop) of the pass."""
        low, high = self._cuts[lot : lot + 2]
        step = self._part.step
        _columns(self._v, self._matches, low, high, self._b, self._part.first_column + step * first,
                 step, self._carries[first:stop])  # fmt: skip

    def export(self, lot: int, pool: NDArray[np.uint32], at: int) -> None:
        """Write the bits of a lot's rows into the result that starts at pool word ``at``."""
        low, high = self._cuts[lot : lot + 2]
        grows = (~self._v[low:high]).view(np.uint32)
        stop = min(2 * high, -(-self._part.rows // 32))
        pool[at + 2 * low : at + stop] = grows[: stop - 2 * low]


@njit(cache=True, nogil=True)
def _match_vectors(a, first, step, rows, matches):
    """Bit i of matches[c]: the i-th row's symbol is c (lines 5-9 of Listing 3)."""
    for i in range(rows):
        matches[a[first + step * i], i >> 6] |= np.uint64(1) << np.uint64(i & 63)


@njit(cache=True, nogil=True)
def _columns(v, matches, low, high, b, first, step, carries):
    """Advance the words [low, high) over columns; ``carries``: in from below, then out above."""
    at = first
    for column in range(carries.size):
        of_symbol = matches[b[at]]
        at += step
        carry = np.uint64(carries[column])
        for word in range(low, high):
            v[word], carry = next_word(v[word], of_symbol[word], carry)
        carries[column] = np.uint8(carry)


@njit(cache=True, nogil=True, inline="always")
def next_word(value, matches, carry):
    """Return a word of v after the next column, and its carry out."""
    some = value + (value & matches)
    total = some + carry
    carry = np.uint64(some < value) | np.uint64(total < some)
    return total | (value & ~matches), carry


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
            lengths = self.grown(part)
            self.pool[at : at + lengths.size] = lengths

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


GPU_FROM = 2_048
DP_ROWS, DP_COLUMNS = 96, 256


class BlockStepProcessor(RowByRow):
    """Runs passes one by one, as the paper's recursion does."""

    def __init__(self, pair: Pair) -> None:
        from gpu.lcs.paper import BlockStep

        super().__init__(pair)
        self._gpu = BlockStep(pair.a, pair.b, pair.symbols)

    def grown(self, part: Part) -> NDArray[np.uint32]:
        """Implement ``RowByRow.grown``."""
        if part.rows + part.columns >= GPU_FROM:
            return self._gpu.llcs(part)
        if part.rows < DP_ROWS or part.columns < DP_COLUMNS:
            return super().grown(part)
        sweep = BitParallelSweep(self.pair, part, 1)
        sweep.run(0, 0, part.columns)
        out = np.zeros(-(-part.rows // 32), dtype=np.uint32)
        sweep.export(0, out, 0)
        return out
