"""The conventional solution (primer paper, Fig. 2a): matrix D by rows, with optimization 1.

    D[i, j]   the least differences between alpha[r:r+i] and a substring of beta that ends at j
    row 0     zeros: the substring may begin anywhere; column 0 is the empty substring

One row is stored (section 2). Optimization 1 (section 2.1): a row without a cell below k ends it,
and the row before was c. Operations: a comparison and two minima a cell, one after another along
the row; c + 1 rows of |beta| cells for each start.
"""

from __future__ import annotations

import numpy as np

from trie.codes import GAP, INVALID
from trie.cpu.intrinsics import load_now
from trie.cpu.jit import njit


@njit(cache=True, nogil=True)
def longest_prefix(alpha, beta, k, row, comparisons, stop):
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
