"""The paper's conventional CUDA solution (section 4): matrix D in tiles, optimizations
1, 3, 4 and 5.

A block takes a start, that is, a matrix (coarse grain); its threads the cells of an anti-diagonal
(fine grain). D is cut into tiles of as many rows as threads (Fig. 6a); a tile is swept along beta,
thread t at column step - t, so that

    left       is the thread's own last cell
    up, diag   are the last two cells of thread t - 1, from one of three anti-diagonals in shared
               memory

    1  the saved row at the bottom of a tile: if all its cells are k or more, no tile follows
    3  the highest row with a cell below k for each thread, joined by a reduction at the end
    4  the tiles: anti-diagonals in shared memory; the row between two tiles, O(|beta|), in global
       memory
    5  a tile's symbols of alpha in shared memory

Operations: about 15 per cell, and one barrier per anti-diagonal.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gpu.card.intrinsics import cuda
from gpu.primer.paper.reduction import store_highest
from trie.codes import GAP


def kernel(threads: int) -> Callable[..., None]:
    """The kernel; ``[starts, threads]``, one block per start.

    Arguments: alpha uint8[m], beta uint8[n], k int32, starts int64[b], rows int32[b, n + 1] (room),
    lengths int32[b] (out: c), comparisons uint64[1] (raised by the symbols compared).
    """

    def conventional(alpha, beta, k, starts, rows, lengths, comparisons):
        cells = cuda.shared.array((3, threads), np.int32)
        letters = cuda.shared.array(threads, np.uint8)
        highest = cuda.shared.array(threads, np.int32)
        alive = cuda.shared.array(1, np.int32)
        block = cuda.blockIdx.x
        t = np.int32(cuda.threadIdx.x)
        start = np.int64(starts[block])
        m = np.int32(np.int64(alpha.size) - start)
        n = np.int32(beta.size)
        j = t
        while j <= n:
            rows[block, j] = 0  # row 0: a match begins anywhere
            j = np.int32(j + np.int32(threads))
        highest[t] = 0
        above = np.int32(0)
        while above < m:
            cuda.syncthreads()
            i = np.int32(np.int32(above + t) + np.int32(1))
            if i <= m:
                letters[t] = alpha[start + i - 1]
            if t == 0:
                alive[0] = 0
            left = i  # D[i, 0]
            diagonal = np.int32(i - np.int32(1))
            bottom = np.int32(min(np.int32(above + np.int32(threads)), m))
            own = np.int32(0)
            cuda.syncthreads()
            if i <= m and i < k:
                own = i
            for step in range(np.int32(n + np.int32(threads))):
                j = np.int32(np.int32(step) - t + np.int32(1))
                if i <= m and j >= 1 and j <= n:
                    if t == 0:
                        up = np.int32(rows[block, j])
                        if j == 1:
                            diagonal = above
                    else:
                        up = np.int32(cells[(step + 2) % 3, t - 1])
                    symbol = np.int32(beta[j - 1])
                    differs = np.int32(1)
                    if symbol == np.int32(letters[t]) and symbol != np.int32(GAP):
                        differs = np.int32(0)
                    here = np.int32(
                        min(np.int32(min(left, up) + np.int32(1)), np.int32(diagonal + differs))
                    )
                    left = here
                    diagonal = up
                    cells[step % 3, t] = here
                    if here < k:
                        own = i
                    if i == bottom:
                        rows[block, j] = here
                        if here < k:
                            alive[0] = 1
                cuda.syncthreads()
            highest[t] = max(highest[t], own)
            if t == 0:
                cuda.atomic.add(comparisons, 0, np.uint64(np.int64(bottom - above) * np.int64(n)))
                if bottom < k:
                    alive[0] = 1  # the empty substring
            cuda.syncthreads()
            above = bottom
            if alive[0] == 0:
                break
        store_highest(highest, t, threads, lengths, block)

    return conventional
