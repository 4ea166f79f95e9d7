"""The paper's alternative CUDA solution (section 4): matrix L in tiles, optimizations 3 to 6.

A block takes a start (coarse grain), its threads the cells of a column of L (fine grain). L is cut
into parallelograms (Fig. 6b) of as many diagonals as threads: in column e a tile holds the
diagonals first - e .. first - e + threads - 1, so of column e - 1 it lacks only two diagonals on
its left, which the previous tile has saved.

    3  the highest row of column k - 1 for each thread, joined by a reduction at the end
    4  the tiles: two columns of a tile, and two saved cells for each column (O(k)), in shared
       memory
    5  the first ``prefetched`` symbols of the suffix of alpha in shared memory, once per start
    6  a window of beta in shared memory, prefetched + threads symbols that end where the tile's
       last diagonal begins plus prefetched; each tile brings ``threads`` new ones. It is
       speculative: rows beyond it read from global memory (a miss)

    prefetched = ceil(c * k / threads) * threads         (section 4.2; c = 3 missed none, Table 4)

Operations: 8 per cell, 6 per comparison, and one barrier per column.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gpu.card.intrinsics import cuda
from gpu.primer.paper.reduction import store_highest
from trie.codes import GAP


def prefetched(c: int, k: int, threads: int) -> int:
    """Symbols of alpha in shared memory for the constant factor c (section 4.2)."""
    return -(-c * k // threads) * threads


def kernel(threads: int, most_k: int, c: int, counted: bool) -> Callable[..., None]:
    """The kernel for k <= most_k; ``[starts, threads]``, one block per start. c = 0: no prefetch.

    Arguments: alpha uint8[m], beta uint8[n], k int32, starts int64[b], lengths int32[b] (out),
    counts uint64[5]: comparisons, and with ``counted`` accesses to alpha, misses, to beta, misses.
    """
    ahead = prefetched(c, most_k, threads)
    window = ahead + threads
    alpha_room = max(ahead, 1)
    columns = most_k + 1

    def alternative(alpha, beta, k, starts, lengths, counts):
        column = cuda.shared.array((2, threads), np.int32)
        saved = cuda.shared.array((2, columns, 2), np.int32)
        near_alpha = cuda.shared.array(alpha_room, np.uint8)
        near_beta = cuda.shared.array(window, np.uint8)
        highest = cuda.shared.array(threads, np.int32)
        block = cuda.blockIdx.x
        t = np.int32(cuda.threadIdx.x)
        start = np.int64(starts[block])
        m = np.int32(np.int64(alpha.size) - start)
        n = np.int32(beta.size)
        at = t
        while at < np.int32(ahead):
            if at < m:
                near_alpha[at] = alpha[start + at]
            # the part of the window that the first tile does not load
            if at < n and c:
                near_beta[at] = beta[at]
            at = np.int32(at + np.int32(threads))
        compared = np.int64(0)
        alpha_misses = np.int64(0)
        beta_misses = np.int64(0)
        own = np.int32(min(m, np.int32(k - np.int32(1))))
        # left of every diagonal that begins in beta: d < 0 begins at row -d
        at = t
        while at < k:
            # column e of the tile before the first: diagonals -e - 2 and -e - 1
            saved[0, at, 0] = np.int32(at + np.int32(1))
            saved[0, at, 1] = at
            at = np.int32(at + np.int32(threads))
        first = np.int32(0)
        turn = np.int32(0)
        while first < np.int32(n + k):
            base = np.int32(first + np.int32(ahead))  # the newest part of the window begins here
            if c:
                at = np.int32(base + t)
                if at < n:
                    near_beta[at % window] = beta[at]
            for e in range(k):
                cuda.syncthreads()
                d = np.int32(np.int32(first - np.int32(e)) + t)
                now = np.int32(e & 1)
                row = np.int32(-1)
                if e > 0:
                    # L[d - 1], L[d], L[d + 1] of column e - 1, in which d is at place t - 1
                    left = column[1 - now, t - 2] if t >= 2 else saved[turn, e - 1, t]
                    middle = column[1 - now, t - 1] if t >= 1 else saved[turn, e - 1, 1]
                    right = column[1 - now, t]
                    row = np.int32(max(left, np.int32(max(middle, right) + np.int32(1))))
                else:
                    row = np.int32(0)
                if d >= n:
                    row = np.int32(-1)  # no cell of L
                else:
                    row = np.int32(min(row, m))
                    more = row < m and np.int32(row + d) < n
                    while more:
                        compared += 1
                        i = np.int32(row)
                        j = np.int32(row + d)
                        if i < np.int32(ahead):
                            symbol = near_alpha[i]
                        else:
                            symbol = alpha[start + i]
                            if counted:
                                alpha_misses += 1
                        if c and j >= first and j < np.int32(base + np.int32(threads)):
                            other = near_beta[j % window]
                        else:
                            other = beta[j]
                            if counted:
                                beta_misses += 1
                        more = symbol == other and symbol != np.uint8(GAP)
                        if more:
                            row = np.int32(row + np.int32(1))
                            more = row < m and np.int32(row + d) < n
                    if e == np.int32(k - np.int32(1)):
                        own = np.int32(max(own, row))
                    if row >= m:
                        own = m
                column[now, t] = row
                if t >= np.int32(threads - 2):
                    saved[1 - turn, e, t - np.int32(threads - 2)] = row
            cuda.syncthreads()
            first = np.int32(first + np.int32(threads))
            turn = np.int32(np.int32(1) - turn)
        cuda.atomic.add(counts, 0, np.uint64(compared))
        if counted:
            cuda.atomic.add(counts, 1, np.uint64(compared))
            cuda.atomic.add(counts, 2, np.uint64(alpha_misses))
            cuda.atomic.add(counts, 3, np.uint64(compared))
            cuda.atomic.add(counts, 4, np.uint64(beta_misses))
        highest[t] = own
        store_highest(highest, t, threads, lengths, block)

    return alternative
