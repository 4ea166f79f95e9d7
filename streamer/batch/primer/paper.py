"""The primer paper's methods as published: baselines; the default uses one for long matches.

The alternative solution (Fig. 2b): matrix L by diagonals, with optimization 2.

    L[d, e]   the highest row i of D with D[i, j] = e on the diagonal j - i = d
    d         from -e (e symbols of alpha inserted before beta begins) to |beta| - 1

One column is stored; column e is made from column e - 1 in place. Optimization 1 is implicit;
optimization 2 (section 2.1) ends a start whose whole suffix has been matched. Operations: three
maxima a cell and about one comparison and a third, k columns of |beta| + e cells for each start.

The conventional solution (Fig. 2a): matrix D by rows, with optimization 1.

    D[i, j]   the least differences between alpha[r:r+i] and a substring of beta that ends at j
    row 0     zeros: the substring may begin anywhere; column 0 is the empty substring

One row is stored (section 2). Optimization 1 (section 2.1): a row without a cell below k ends it,
and the row before was c. Operations: a comparison and two minima a cell, one after another along
the row; c + 1 rows of |beta| cells for each start.

Over cores (section 3):

coarse        threads take starts in turn, schedule(static, 1) of Fig. 4a, and share ``done``
fine          threads take the diagonals of a column of L; a barrier per column, optimization 3
coarse-fine   several starts at a time, each by several threads

The fine-grained conventional solution is omitted, as in the paper: without rows there is no
optimization 1 (section 3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.batch.primer.problem import Alpha, Columns
from streamer.batch.records import Codes
from trie.codes import GAP, INVALID
from trie.cpu.interrupts import interruptible
from trie.cpu.intrinsics import load_now
from trie.cpu.jit import njit
from trie.cpu.threads import run_all, split_range


@njit(cache=True, nogil=True)
def alternative_longest_prefix(alpha, beta, k, column, comparisons, stop, diagonals=-1):
    """See ``conventional.longest_prefix``; column: int32[diagonals + k + 3] or more, overwritten.

    Only diagonals below ``diagonals`` (at most |beta|; -1 is all) are searched: a prefix whose
    alignment needs others is not found.
    """
    m = alpha.size
    n = beta.size
    if diagonals < 0:
        diagonals = n
    shift = k + 1  # column[d + shift] is diagonal d
    for d in range(-k - 1, 0):
        column[d + shift] = -d - 1
    for d in range(diagonals + 1):
        column[d + shift] = -1
    compared = 0
    c = min(m, k - 1)
    for e in range(k):
        if load_now(stop):
            break
        before = np.int32(column[shift - e - 1])  # L[d - 1, e - 1]
        for d in range(-e, diagonals):
            here = column[d + shift]
            row = max(before, max(column[d + 1 + shift], here) + 1)
            before = here
            row = min(row, m)
            # row + d is not below 0: diagonals left of 0 begin at row -d
            while row < m and row + d < n:
                compared += 1
                if alpha[row] != beta[row + d] or alpha[row] == GAP:
                    break
                row += 1
            column[d + shift] = row
            if row >= m:
                comparisons[0] += compared
                return m
            if row > c and e == k - 1:
                c = row
    comparisons[0] += compared
    return c


@njit(cache=True, nogil=True)
def fill_column(alpha, beta, e, k, first, last, earlier, column, best, part):
    """Column e of L on the diagonals first..last - 1, from column e - 1 (Fig. 4b).

    earlier, column: int32[|beta| + k + 3]. The highest row goes to best[part]: a place for each
    thread instead of one in a critical section (optimization 3).
    """
    m = alpha.size
    n = beta.size
    shift = k + 1
    highest = 0
    for d in range(first, last):
        row = max(earlier[d - 1 + shift], max(earlier[d + 1 + shift], earlier[d + shift]) + 1)
        row = min(row, m)
        while row < m and row + d < n and alpha[row] == beta[row + d] and alpha[row] != GAP:
            row += 1
        column[d + shift] = row
        highest = max(highest, row)
    best[part] = highest


@njit(cache=True, nogil=True)
def conventional_longest_prefix(alpha, beta, k, row, comparisons, stop):
    """The length of alpha's longest prefix within k - 1 differences of a substring of beta.

    alpha and beta: uint8[], one record each. row: int32[|beta| + 1] or more, overwritten.
    comparisons: int64[1], raised by the symbols compared. stop: uint8[1]; once another thread sets
    it, the search ends with the result so far.
    """
    n = beta.size
    for j in range(n + 1):
        row[j] = 0
    for i in range(1, alpha.size + 1):
        if load_now(stop):
            return i - 1
        # nothing in beta matches a gap
        symbol = alpha[i - 1] if alpha[i - 1] != GAP else np.uint8(INVALID)
        diagonal = row[0]
        row[0] = i
        left = np.int32(i)
        least = left
        for j in range(1, n + 1):
            up = row[j]
            left = np.int32(min(min(left, up) + 1, diagonal + (beta[j - 1] != symbol)))
            row[j] = left
            diagonal = up
            least = min(least, left)
        comparisons[0] += n
        if least >= k:
            return i - 1
    return alpha.size


Stop = NDArray[np.uint8]


def coarse(
    longest_prefix: Callable[..., int], alpha: Alpha, pieces: list[Codes], k: int, reach: Columns,
    threads: int, comparisons: Columns | None = None,
) -> None:  # fmt: skip
    """Raise the reaches by every piece, with ``longest_prefix`` of conventional or alternative.

    One thread is the sequential solution (Fig. 1). ``comparisons`` int64[1] counts symbols
    compared.
    """
    for begin, end in alpha.bounds():
        record = alpha.codes[begin:end]
        for piece in pieces:
            done = _first_done(reach[begin:end], end)
            counts = np.zeros((threads, 1), dtype=np.int64)
            turns = [
                partial(_take_turns, longest_prefix, record, piece, k,
                        range(thread, record.size - k + 1, threads), begin, reach[begin:end], done,
                        counts[thread])
                for thread in range(threads)
            ]  # fmt: skip
            interruptible(partial(_run, turns, threads), float(piece.size) * k * record.size)
            reach[begin + done[0] : end] = end
            if comparisons is not None:
                comparisons[0] += counts.sum()


def _run(turns: Sequence[Callable[[Stop], None]], threads: int, stop: Stop) -> None:
    run_all([partial(turn, stop) for turn in turns], threads)


def _take_turns(
    longest_prefix: Callable[..., int], alpha: Codes, beta: Codes, k: int, starts: range,
    begin: int, reach: Columns, done: Columns, comparisons: Columns, stop: Stop,
) -> None:  # fmt: skip
    """Run Fig. 1 for some starts of one record, at ``begin``, against one text.

    reach: int64[m] of the record is raised. done: int64[1], shared by the threads: the first start
    at which alpha has been matched to its end; later ones have no solution (Fig. 4a).
    """
    room = np.empty(beta.size + k + 3, dtype=np.int32)
    for r in starts:
        if r >= done[0] or stop[0]:
            break
        c = longest_prefix(alpha[r:], beta, k, room, comparisons, stop)
        reach[r] = max(reach[r], begin + r + c)
        if r + c >= alpha.size:
            done[0] = min(done[0], r)


def _first_done(reach: Columns, end: int) -> Columns:
    """Return int64[1]: the first start from which alpha has been matched to its end."""
    return np.array([np.searchsorted(reach, end)], dtype=np.int64)


def fine(alpha: Alpha, pieces: list[Codes], k: int, reach: Columns, threads: int) -> None:
    """Run the alternative solution with the cells of a column divided among threads."""
    _starts(alpha, pieces, k, reach, 1, partial(run_all, threads=threads))


def coarse_fine(alpha: Alpha, pieces: list[Codes], k: int, reach: Columns, threads: int) -> None:
    """Take starts in turn, and divide the cells of their columns among threads too.

    As many starts at a time as threads, with two threads each, as the paper has more threads than
    cores when it combines the two.
    """
    with ThreadPoolExecutor(2 * threads) as pool:

        def run(tasks: list[Callable[[], None]]) -> None:
            for future in [pool.submit(task) for task in tasks]:
                future.result()

        _starts(alpha, pieces, k, reach, threads, run)


def _starts(
    alpha: Alpha, pieces: list[Codes], k: int, reach: Columns, threads: int, run: Callable[..., Any]
) -> None:
    """Take ``threads`` starts at a time until alpha is matched to its end; ``run`` runs tasks."""
    for begin, end in alpha.bounds():
        letters = alpha.codes[begin:end]
        for piece in pieces:
            first, stop = 0, int(_first_done(reach[begin:end], end)[0])
            while first < min(stop, letters.size - k + 1):
                starts = range(first, min(first + threads, stop, letters.size - k + 1))
                tasks = [partial(_longest_prefix, run, letters[r:], piece, k) for r in starts]
                for start, c in zip(starts, run_all(tasks, threads), strict=True):
                    reach[begin + start] = max(reach[begin + start], begin + start + c)
                    if start + c >= letters.size:
                        stop = min(stop, start)
                first += threads
            reach[begin + stop : end] = end


def _longest_prefix(run: Callable[..., Any], alpha: Codes, beta: Codes, k: int) -> int:
    """Run Fig. 4b: the columns one after another, the diagonals of each in two parts."""
    columns = np.empty((2, beta.size + k + 3), dtype=np.int32)
    columns[:] = -1
    columns[:, : k + 1] = np.arange(k, -1, -1)
    parts = 2
    best = np.zeros(parts, dtype=np.int64)
    for e in range(k):
        best[:] = 0
        run(
            [
                partial(
                    fill_column, alpha, beta, e, k, first, last,
                    columns[1 - e % 2], columns[e % 2], best, part,
                )
                for part, (first, last) in enumerate(split_range(-e, beta.size, parts))
            ]
        )  # fmt: skip
        if best.max() >= alpha.size:  # optimization 2
            return alpha.size
    return max(int(best.max()), min(alpha.size, k - 1))
