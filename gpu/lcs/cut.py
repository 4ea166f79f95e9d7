"""Where to cut a table in two: at the row where the lengths from both corners have the largest sum.

If f(r) is the sum for the first r rows, f(r + 1) - f(r) is the bit of row r in the result from the
first corner minus that in the result from the last: a walk up and down, whose highest point is the
cut. A block takes a table, its threads equal numbers of adjacent words; each finds the highest
point and the end of its part, and one thread combines them. About 6 operations per row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.core import types

from gpu.card.intrinsics import bit_count, cuda
from gpu.lcs.word_operations import rows_of

THREADS = 512
MOST_THREADS = 1024

# fields of a table
FIRST, LAST, ROWS = range(3)


def cut(pool: Any, tables: Any, found: Any) -> None:
    """Find the cut of every table; one block per table.

    found: int64[tables, 2], the first best row and the length of the subsequence. pool: uint32.
    tables: int64[tables, 3], the words at which both results begin, and the rows.
    """
    ends = cuda.shared.array(MOST_THREADS, types.int64)
    highs = cuda.shared.array(MOST_THREADS, types.int64)
    rows_at = cuda.shared.array(MOST_THREADS, types.int64)
    counts = cuda.shared.array(MOST_THREADS, types.int64)
    table = cuda.blockIdx.x
    thread = cuda.threadIdx.x
    first = tables[table, FIRST]
    last = tables[table, LAST]
    rows = tables[table, ROWS]
    words = (rows + 31) >> 5
    each = (words + cuda.blockDim.x - 1) // cuda.blockDim.x
    here = np.int64(0)
    high = np.int64(0)
    high_at: Any = np.int64(-1)
    count: Any = np.int64(0)
    for word in range(thread * each, min((thread + 1) * each, words)):
        valid = np.uint32(0xFFFFFFFF)
        if 32 * word + 32 > rows:
            valid = np.uint32((np.uint32(1) << np.uint32(rows & 31)) - np.uint32(1))
        up = np.uint32(pool[first + word] & valid)
        # row r is bit rows - 1 - r of the result from the last corner
        down = np.uint32(rows_of(pool, last, words, rows - 32 * word, True) & valid)
        count += np.int64(bit_count(down))
        if up != down:
            for bit in range(32):
                here += np.int64((up >> np.uint32(bit)) & np.uint32(1))
                here -= np.int64((down >> np.uint32(bit)) & np.uint32(1))
                if here > high:
                    high = here
                    high_at = 32 * word + bit + 1
    ends[thread] = here
    highs[thread] = high
    rows_at[thread] = high_at
    counts[thread] = count
    cuda.syncthreads()
    if thread == 0:
        total = np.int64(0)
        best = np.int64(0)
        best_at = np.int64(0)
        length = np.int64(0)
        for other in range(cuda.blockDim.x):
            if rows_at[other] >= 0 and total + highs[other] > best:
                best = total + highs[other]
                best_at = rows_at[other]
            total += ends[other]
            length += counts[other]
        found[table, 0] = best_at
        found[table, 1] = length + best
