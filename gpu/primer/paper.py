"""The primer paper's two CUDA solutions (section 4): baselines for the other methods.

A block takes a start (coarse grain), its threads the cells of a column or an anti-diagonal (fine
grain); starts come in batches as large as memory allows. Both solutions keep the highest row for
each thread and reduce them at the end (optimization 3), and work in tiles (4).

Alternative: matrix L in parallelograms (Fig. 6b) of as many diagonals as threads. In column e a
tile holds the diagonals first - e .. first - e + threads - 1, so of column e - 1 it lacks only two
diagonals on its left, which the previous tile has saved: two columns of a tile and two cells for
each column (O(k)) in shared memory.

    5  the first ``prefetched`` symbols of the suffix of alpha in shared memory, once per start
    6  a window of beta in shared memory, prefetched + threads symbols that end where the tile's
       last diagonal begins plus prefetched; each tile brings ``threads`` new ones. Rows beyond it
       read from global memory (a miss)

    prefetched = ceil(c * k / threads) * threads         (section 4.2; c = 3 missed none, Table 4)

Operations: 8 per cell, 6 per comparison, and one barrier per column.

Conventional: matrix D in tiles of as many rows as threads (Fig. 6a), swept along beta, thread t at
column step - t. ``left`` is the thread's own last cell; ``up`` and ``diagonal`` are the last two of
thread t - 1, from one of three anti-diagonals in shared memory; the row between two tiles is in
global memory.

    1  if all cells of the row at the bottom of a tile are k or more, no tile follows
    5  a tile's symbols of alpha in shared memory

Operations: about 15 per cell, and one barrier per anti-diagonal.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.card.intrinsics import cuda, device_function
from gpu.card.kernel_cache import made
from gpu.card.memory import free_memory
from trie.codes import GAP


@device_function
def store_highest(highest, t, threads, lengths, block):
    """lengths[block] = the maximum of ``highest``, int32[threads] in shared memory.

    Called by all threads of the block, t of ``threads``, a power of two.
    """
    cuda.syncthreads()
    half = np.int32(threads // 2)
    while half > 0:
        if t < half:
            highest[t] = max(highest[t], highest[t + half])
        cuda.syncthreads()
        half = np.int32(half // np.int32(2))
    if t == 0:
        lengths[block] = highest[0]


def prefetched(c: int, k: int, threads: int) -> int:
    """Symbols of alpha in shared memory for the constant factor c (section 4.2)."""
    return -(-c * k // threads) * threads


def alternative_kernel(threads: int, most_k: int, c: int, counted: bool) -> Callable[..., None]:
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


def conventional_kernel(threads: int) -> Callable[..., None]:
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


BLOCK_THREADS = 256
"""Threads per block: the paper's best (Fig. 9)."""

PREFETCH_FACTOR = 3  # the constant c of section 4.2 that missed nothing (Table 4)
ROW_BYTES = 4 << 30  # the most memory for the rows of D between tiles


def longest_prefixes(
    method: str, alpha: NDArray[np.uint8], beta: NDArray[np.uint8], k: int,
    starts: NDArray[np.int64], *, threads: int = BLOCK_THREADS, factor: int = PREFETCH_FACTOR,
    counted: bool = False,
) -> tuple[NDArray[np.int32], NDArray[np.uint64]]:  # fmt: skip
    """The longest prefix c of every start (int32), and counts (uint64[5], see the kernel).

    ``method`` is conventional (optimizations 1, 3, 4, 5) or alternative (3, 4, 5, 6); alpha and
    beta are one record each. ``threads``: per block, a power of two, at least 32. ``factor`` is c
    of section 4.2; ``counted`` counts misses of the prefetch.
    """
    codes, text = cuda.to_device(alpha), cuda.to_device(beta)
    lengths = np.empty(starts.size, dtype=np.int32)
    counts = cuda.to_device(np.zeros(5, dtype=np.uint64))
    row_bytes = min(ROW_BYTES, free_memory() // 2)
    batch = max(1, min(starts.size, row_bytes // (4 * (beta.size + 1)), 1 << 16))
    rows: Any = None
    if method == "conventional":
        rows = cuda.device_array((batch, beta.size + 1), np.int32)
    for at in range(0, starts.size, batch):
        some = cuda.to_device(starts[at : at + batch])
        out = cuda.device_array(some.size, np.int32)
        if method == "conventional":
            made(conventional_kernel, threads)[some.size, threads](
                codes, text, np.int32(k), some, rows, out, counts[:1]
            )
        else:
            made(alternative_kernel, threads, k, factor, counted)[some.size, threads](
                codes, text, np.int32(k), some, out, counts
            )
        out.copy_to_host(lengths[at : at + batch])
    return lengths, counts.copy_to_host()
