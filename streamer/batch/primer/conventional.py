"""The conventional solution (primer paper, Fig. 2a): matrix D by rows, with optimization 1.

    D[i, j]   the least differences between alpha[r:r+i] and a substring of beta that ends at j
    row 0     zeros: the substring may begin anywhere; column 0 is the empty substring

One row is kept (section 2). Optimization 1 (section 2.1): a row without a cell below k ends it, and
the row before was c. Operations: a comparison and two minima a cell, one after another along the
row; c + 1 rows of |beta| cells for each start.
"""

from __future__ import annotations

import numpy as np

from trie.codes import GAP
from trie.cpu.jit import njit


@njit(cache=True, nogil=True)
def longest_prefix(alpha, beta, k, row, comparisons, stop):
    """The length of alpha's longest prefix within k - 1 differences of a substring of beta.

    alpha and beta uint8[] of one record each; ``row`` is room for int32[|beta| + 1];
    ``comparisons`` int64[1] is raised by the symbols compared; ``stop`` int64[1] below 0, which
    another thread may set, ends it with what there is.
    """
    n = beta.size
    for j in range(n + 1):
        row[j] = 0
    for i in range(1, alpha.size + 1):
        if stop[0] < 0:
            return i - 1
        symbol = alpha[i - 1]
        diagonal = row[0]
        row[0] = i
        left = np.int32(i)
        least = left
        for j in range(1, n + 1):
            up = row[j]
            t = 0 if beta[j - 1] == symbol and symbol != GAP else 1
            left = np.int32(min(min(left, up) + 1, diagonal + t))
            row[j] = left
            diagonal = up
            least = min(least, left)
        comparisons[0] += n
        if least >= k:
            return i - 1
    return alpha.size


@njit(cache=True, nogil=True)
def solve(alpha, beta, k, begin, first, last, step, reach, stop, comparisons):
    """Fig. 1 for the starts first, first + step, ... below last of one record against one text.

    ``reach`` int64[m] of the record is raised, all positions counted from ``begin``. ``stop``
    int64[1] is shared: no start behind it is looked at (Fig. 4a), for alpha ends there.
    """
    row = np.empty(beta.size + 1, dtype=np.int32)
    m = alpha.size
    for r in range(first, min(last, m - k + 1), step):
        if r >= stop[0]:
            break
        c = longest_prefix(alpha[r:], beta, k, row, comparisons, stop)
        reach[r] = max(reach[r], begin + r + c)
        if r + c >= m:
            stop[0] = min(stop[0], r)
