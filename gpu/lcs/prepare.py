"""The systolic kernel's input: rows as bit planes, columns in the order of their passes.

    planes    uint32[bits, words]   bit r % 32 of word r // 32: that bit of row r's symbol;
                                    computed once
    columns   uint32, 8 for a cell of 32 columns; a byte a column, the first lowest: the symbol
              times ``scale_of`` in word_operations.py

The columns of a level of the division are laid out for each of its passes, forwards or backwards,
padded to whole cells and followed by empty cells, so that the kernel needs no bounds checks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpu.card.intrinsics import ALL_LANES, as_signed, cuda

THREADS = 128

# fields of a stretch of columns
CELL, FIRST, COUNT, STEP = range(4)


def planes(symbols: Any, out: Any) -> None:
    """Bit planes of symbols (uint8) to out: uint32[bits, ceil(symbols / 32)]; a warp per word.

    THREADS is a multiple of 32.
    """
    word = np.int64(cuda.grid(1)) >> 5
    lane = cuda.threadIdx.x & 31
    if word < out.shape[1]:
        at = 32 * word + lane
        symbol = np.uint32(0)
        if at < symbols.size:
            symbol = np.uint32(symbols[at])
        for p in range(out.shape[0]):
            bits = cuda.ballot_sync(ALL_LANES, (symbol >> np.uint32(p)) & np.uint32(1))
            if lane == 0:
                out[p, word] = np.uint32(bits)


def arrange(symbols: Any, stretches: Any, none: Any, scale: Any, columns: Any, cells: Any) -> None:
    """Lay out the columns of stretches and clear their cells; one warp per cell.

    symbols: uint8, the second sequence. stretches: int64[stretches, 4], ascending by their first
    cell: that cell, the index of the first column's symbol, the number of columns, the step 1 or
    -1. The symbol ``none`` fills the rest. All symbols are multiplied by ``scale``.
    """
    cell = np.int64(cuda.grid(1)) >> 5
    lane = cuda.threadIdx.x & 31
    if cell < cells.size:
        low = 0
        high = stretches.shape[0] - 1
        while low < high:
            middle = (low + high + 1) >> 1
            if stretches[middle, CELL] <= cell:
                low = middle
            else:
                high = middle - 1
        at = 32 * (cell - stretches[low, CELL]) + lane
        symbol = np.uint32(none)
        if at < stretches[low, COUNT]:
            symbol = np.uint32(symbols[stretches[low, FIRST] + stretches[low, STEP] * at])
        symbol = np.uint32(symbol * scale)
        # the symbols of four lanes in one word
        beside = np.uint32(cuda.shfl_down_sync(ALL_LANES, as_signed(symbol), 1))
        symbol = np.uint32(symbol | np.uint32(beside << np.uint32(8)))
        beside = np.uint32(cuda.shfl_down_sync(ALL_LANES, as_signed(symbol), 2))
        symbol = np.uint32(symbol | np.uint32(beside << np.uint32(16)))
        if lane & 3 == 0:
            columns[8 * cell + (lane >> 2)] = symbol
        if lane == 0:
            cells[cell] = np.uint64(0)
