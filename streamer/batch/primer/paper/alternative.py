"""The alternative solution (primer paper, Fig. 2b): matrix L by diagonals, with optimization 2.

    L[d, e]   the highest row i of D with D[i, j] = e on the diagonal j - i = d
    d         from -e (e symbols of alpha inserted before beta begins) to |beta| - 1

One column is stored; column e is made from column e - 1 in place. Optimization 1 is implicit;
optimization 2 (section 2.1) ends a start whose whole suffix has been matched. Operations: three
maxima a cell and about one comparison and a third, k columns of |beta| + e cells for each start.
"""

from __future__ import annotations

import numpy as np

from trie.codes import GAP
from trie.cpu.intrinsics import load_now
from trie.cpu.jit import njit


@njit(cache=True, nogil=True)
def longest_prefix(alpha, beta, k, column, comparisons, stop, diagonals=-1):
    """As ``conventional.longest_prefix``; column: int32[diagonals + k + 3] or more, overwritten.

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
