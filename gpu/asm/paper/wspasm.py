"""WsPASM (WsPASM paper, algorithm 2): one thread per column, D[i-1, j-1] by warp shuffle.

A block computes ``columns = threads * groups`` columns of D independently. The first ``halo`` >= m
+ k of them only lead up to its ends, so no thread needs a cell of another block, and
``syncthreads`` separates the rows. The thread of column j keeps D[i-1, j] in a register (Dvar) from
row to row:

    Avar = D[i-1, j-1]     shfl_up of Dvar; the first lane of a warp reads it from global memory
                           (line 11 of the paper prints i % w where the lane is j % w)
    Bvar = D[i-1, j]       Dvar
    Cvar = D[i-1, X-1]     from global memory                D[i, j] = equation 4, written there

With ``groups`` > 1, for long patterns, a thread has that many columns, ``threads`` apart. In the
shared form the block's part of the text and the pattern are copied to shared memory first.

Operations per cell: a shuffle, 2 loads (X, Cvar), 1 store, about 15 integer operations; without
shared memory 2 more loads.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gpu.card.intrinsics import ALL_LANES, cuda

THREADS = 1024  # threads per block, the columns of one group; a multiple of 32
LONGEST = 1024  # longest pattern that fits in the shared form


def wspasm(threads: int, groups: int, shared: bool) -> Callable[..., None]:
    """The kernel; ``[any grid, threads]``.

    Arguments: codes uint8[n], pattern uint8[m] (sets of bases), rows int32[m] (which row of X is
    that of each letter), last int32[letters, n + 1] (X), k, halo (a multiple of 32), low_planes
    int32, matrix int32[grid, 2, columns + 1] (scratch), found uint32[1 + low_planes, words] as
    ``rows.collect`` writes it. A block has columns - halo ends, a multiple of 32.
    """
    columns = threads * groups
    text_room = columns if shared else 1
    pattern_room = LONGEST if shared else 1

    def kernel(codes, pattern, rows, last, k, halo, low_planes, matrix, found):
        text_here = cuda.shared.array(text_room, np.uint8)
        pattern_here = cuda.shared.array(pattern_room, np.uint8)
        values = cuda.local.array(groups, np.int32)
        thread = cuda.threadIdx.x
        lane = thread & 31
        block = cuda.blockIdx.x
        ends = columns - halo
        tiles = (codes.size + ends - 1) // ends
        tile = block
        if shared:
            for i in range(thread, pattern.size, threads):
                pattern_here[i] = pattern[i]
        while tile < tiles:
            base = tile * ends - halo  # column j of the block is symbol base + j - 1
            if thread == 0:
                matrix[block, 0, 0] = 0
            for group in range(groups):
                j = group * threads + thread + 1
                values[group] = 0
                matrix[block, 0, j] = 0
                if shared:
                    code = np.uint8(4)
                    if 0 <= base + j - 1 < codes.size:
                        code = codes[base + j - 1]
                    text_here[j - 1] = code
            cuda.syncthreads()
            for i in range(1, pattern.size + 1):
                above = (i - 1) & 1
                mask = pattern_here[i - 1] if shared else pattern[i - 1]
                if thread == 0:
                    matrix[block, i & 1, 0] = i
                for group in range(groups):
                    j = group * threads + thread + 1
                    at = base + j - 1
                    left = cuda.shfl_up_sync(ALL_LANES, values[group], 1)
                    if lane == 0:
                        left = matrix[block, above, j - 1]
                    code = np.uint8(4)
                    if shared:
                        code = text_here[j - 1]
                    elif 0 <= at < codes.size:
                        code = codes[at]
                    value = left
                    if not (mask >> code) & 1:
                        x = 0
                        if 0 <= at < codes.size:
                            x = last[rows[i - 1], at + 1] - base
                        along = i + j - 1
                        if x > 0:
                            along = matrix[block, above, x - 1] + (j - 1 - x)
                        value = 1 + min(values[group], min(left, along))
                    values[group] = np.int32(value)
                    matrix[block, i & 1, j] = np.int32(value)
                cuda.syncthreads()
            for group in range(groups):
                j = group * threads + thread + 1
                at = base + j - 1
                away = np.int32(0)
                if j > halo and at < codes.size:
                    away = np.int32(values[group] - k - 1)
                first = lane == 0 and j > halo and (at >> 5) < found.shape[1]
                bits = cuda.ballot_sync(ALL_LANES, away < 0)
                if first:
                    found[0, at >> 5] = bits
                for plane in range(low_planes):
                    bits = cuda.ballot_sync(ALL_LANES, (away >> plane) & 1)
                    if first:
                        found[1 + plane, at >> 5] = bits
            cuda.syncthreads()
            tile += cuda.gridDim.x

    return kernel
