"""Similar sequences: Myers' O(ND) method in linear space; its cost follows the difference.

D = m + n - 2 length is the number of unmatched symbols. On diagonal k = x - y, a path with d of
them reaches furthest at

    x = max(reach[k-1] + 1, reach[k+1])     then as far as the symbols are equal, 8 at a time

Paths from both corners meet after D/2 steps each: D^2 / 4 cells instead of m n. Where they meet
(the middle snake), the table is cut in two; both parts have half of D, so all cuts take D^2 / 2.
(E. W. Myers, An O(ND) Difference Algorithm and Its Variations, Algorithmica 1, 1986.)
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.batch.lcs.passes import Numbers
from streamer.batch.lcs.symbols import Pair, Solution, common_ends
from trie.cpu.interrupts import interruptible
from trie.cpu.intrinsics import leading_zeros, load_now, trailing_zeros, word_at
from trie.cpu.jit import njit
from trie.cpu.threads import run_all

GIVEN_UP = -1
STOPPED = -2
FIRST_LOOK = 64
"""Steps before first checking whether the paths will meet in time; then at every doubling."""


@njit(cache=True, nogil=True, inline="always")
def _forward(a, b, x, y):
    """Count equal symbols from a[x] and b[y] on."""
    limit = min(a.size - x, b.size - y)
    run = 0
    while run + 8 <= limit:
        unlike = word_at(a, x + run) ^ word_at(b, y + run)
        if unlike:
            return run + (np.int64(trailing_zeros(unlike)) >> 3)
        run += 8
    while run < limit and a[x + run] == b[y + run]:
        run += 1
    return run


@njit(cache=True, nogil=True, inline="always")
def _backward(a, b, x, y):
    """Count equal symbols before a[x] and b[y]."""
    limit = min(x, y)
    run = 0
    while run + 8 <= limit:
        unlike = word_at(a, x - run - 8) ^ word_at(b, y - run - 8)
        if unlike:
            return run + (np.int64(leading_zeros(unlike)) >> 3)
        run += 8
    while run < limit and a[x - run - 1] == b[y - run - 1]:
        run += 1
    return run


@njit(cache=True, nogil=True)
def meet(a, b, limit, stop):
    """Return (D, x, y): the difference, and where an optimal path may be cut.

    D is GIVEN_UP above about 2 limit, STOPPED once stop[0] (uint8) is set.

    Makes up to ``limit`` steps from each corner, and gives up early if at the current pace they
    will not suffice. Memory: 32 bytes per step.
    """
    m = a.size
    n = b.size
    delta = m - n
    odd = (delta & 1) != 0
    size = min(limit, (m + n + 1) // 2) + 2
    # reach[d + size] is diagonal d from the first corner, d + delta from the last
    ahead = np.full(2 * size + 1, -1, dtype=np.int64)
    behind = np.full(2 * size + 1, m + 1, dtype=np.int64)
    # diagonals that have left the table are no longer followed
    low = high = back_low = back_high = 0
    look = FIRST_LOOK
    for step in range(limit + 1):
        if load_now(stop):
            return STOPPED, 0, 0
        far = 0
        for k in range(-step + 2 * low, step - 2 * high + 1, 2):
            x = max(ahead[size + k - 1] + 1, ahead[size + k + 1])
            y = x - k
            run = _forward(a, b, x, y)
            x += run
            y += run
            ahead[size + k] = x
            far = max(far, x + y)
            if x >= m:
                high = max(high, (step - k) // 2 + 1)
            if y >= n:
                low = max(low, (step + k) // 2 + 1)
            if odd and abs(k - delta) < step and behind[size + k - delta] <= x:
                return 2 * step - 1, x, y
        near = m + n
        for k in range(-step + 2 * back_low, step - 2 * back_high + 1, 2):
            x = min(behind[size + k - 1], behind[size + k + 1] - 1)
            y = x - k - delta
            run = _backward(a, b, x, y)
            x -= run
            y -= run
            behind[size + k] = x
            near = min(near, x + y)
            if x <= 0:
                back_low = max(back_low, (step + k) // 2 + 1)
            if y <= 0:
                back_high = max(back_high, (step - k) // 2 + 1)
            if not odd and abs(k + delta) <= step and ahead[size + k + delta] >= x:
                return 2 * step, x, y
        if step == look:
            # the two directions together must cover everything
            if (far + m + n - near) * (limit // step + 1) < m + n:
                break
            look *= 2
    return GIVEN_UP, 0, 0


@njit(cache=True, nogil=True)
def solve(a, b, in_a, in_b, stop, row, row_end, column, column_end):
    """Set the flags of one longest common subsequence of each table (int64[tables] bounds)."""
    cut = np.empty(6, dtype=np.int64)
    stack = np.empty((64, 4), dtype=np.int64)
    for t in range(row.size):
        stack[0] = (row[t], row_end[t], column[t], column_end[t])
        depth = 1
        while depth:
            depth -= 1
            low, high, left, right = stack[depth]
            limit = high - low + right - left
            if _cut(a, b, in_a, in_b, stop, low, high, left, right, limit, cut) < 2:
                continue
            if depth + 2 > stack.shape[0]:
                stack = np.concatenate((stack, np.empty_like(stack)))
            stack[depth] = (cut[0], cut[1], cut[3], cut[4])
            stack[depth + 1] = (cut[1], cut[2], cut[4], cut[5])
            depth += 2


@njit(cache=True, nogil=True)
def _cut(a, b, in_a, in_b, stop, row, row_end, column, column_end, limit, cut):
    """Match a table's common ends; return its difference, GIVEN_UP or STOPPED.

    It is given up above about 2 ``limit``. cut: the three rows, then the three columns that bound
    the two remaining tables; none if D < 2.
    """
    of_a = a[row:row_end]
    of_b = b[column:column_end]
    prefix, suffix = common_ends(of_a, of_b)
    inner_a = of_a[prefix : of_a.size - suffix]
    inner_b = of_b[prefix : of_b.size - suffix]
    difference = inner_a.size + inner_b.size
    x = inner_a.size
    y = inner_b.size
    if x and y:
        difference, x, y = meet(inner_a, inner_b, limit, stop)
        if difference < 0:
            return difference
    else:
        # one is a subsequence of the other: nothing left to match
        difference = min(difference, 1)
    in_a[row : row + prefix] = True
    in_b[column : column + prefix] = True
    in_a[row_end - suffix : row_end] = True
    in_b[column_end - suffix : column_end] = True
    cut[0] = row + prefix
    cut[1] = row + prefix + x
    cut[2] = row_end - suffix
    cut[3] = column + prefix
    cut[4] = column + prefix + y
    cut[5] = column_end - suffix
    return difference


@njit(cache=True, nogil=True)
def _cut_each(a, b, in_a, in_b, stop, bounds, limits, which, difference, cuts):
    for t in which:
        difference[t] = _cut(a, b, in_a, in_b, stop, bounds[0, t], bounds[1, t],
                             bounds[2, t], bounds[3, t], limits[t], cuts[t])  # fmt: skip


def difference_of(pair: Pair, limit: int) -> int:
    """Return D of two nonempty sequences, GIVEN_UP if it is above about 2 ``limit``."""
    return int(interruptible(lambda stop: meet(pair.a, pair.b, limit, stop)[0], float(limit) ** 2))


def solve_similar(
    solution: Solution, threads: int, limit: Callable[[Numbers], Numbers], *bounds: Numbers
) -> NDArray[np.bool_]:
    """Set the flags of the tables with a small difference, and return which they were.

    bounds: row, row_end, column, column_end, int64[tables]. limit: maps the bounds, int64[4,
    tables], to the steps from each corner worth trying.
    """
    tables = np.stack(bounds)
    limits = limit(tables)
    return interruptible(
        lambda stop: _solve_all((*solution.arrays, stop), threads, tables, limits),
        float((limits.astype(np.float64) ** 2).sum()),
    )


def _solve_all(
    arrays: tuple[Any, ...], threads: int, tables: Numbers, limits: Numbers
) -> NDArray[np.bool_]:
    """``solve_similar`` with the solution's arrays and ``stop``."""
    difference, cuts = _cut_all(arrays, threads, tables, limits)
    solved: NDArray[np.bool_] = difference != GIVEN_UP
    # all threads cut the larger halves until there are enough; then each continues alone
    while True:
        cuts = cuts[difference >= 2]
        halves = np.concatenate([cuts[:, [0, 1, 3, 4]], cuts[:, [1, 2, 4, 5]]]).T.copy()
        if halves.shape[1] == 0 or halves.shape[1] >= 4 * threads or threads == 1:
            break
        everything = halves[1] - halves[0] + halves[3] - halves[2]
        difference, cuts = _cut_all(arrays, threads, halves, everything)
    parts = min(4 * threads, halves.shape[1])
    run_all([partial(solve, *arrays, *halves[:, part::parts]) for part in range(parts)], threads)
    return solved


def _cut_all(
    arrays: tuple[Any, ...], threads: int, tables: Numbers, limits: Numbers
) -> tuple[Numbers, Numbers]:
    """Return the difference of each table, and the cuts: int64[tables, 6]."""
    count = tables.shape[1]
    difference = np.empty(count, dtype=np.int64)
    cuts = np.empty((count, 6), dtype=np.int64)
    parts = min(4 * threads, count)
    tasks: list[Callable[[], None]] = [
        partial(_cut_each, *arrays, tables, limits, np.arange(part, count, parts), difference, cuts)
        for part in range(parts)
    ]
    run_all(tasks, threads)
    return difference, cuts
