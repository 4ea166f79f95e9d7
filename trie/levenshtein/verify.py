"""Filter candidates by the hundred, in vector lanes: which can be within the distance.

Each candidate aligns the sides of the piece (trie/levenshtein/reach.py) and passes if some c edits
suffice before the piece and D - c after it. Here gap codes count as A and reads are not separated,
so those that pass are a superset, which ``write_ends`` then verifies in full.

Operations per candidate for D edits: twice 8 (D + 1)^2 + 5 (2D + 1) and about ten, on uint32 lanes
without a branch: eight candidates per instruction with 256-bit vectors.
"""

from __future__ import annotations

import numpy as np

from trie.cpu.jit import njit
from trie.levenshtein.piece_search import REACH

_cost0, _cost1, _cost2, _cost3, _cost4 = REACH.costs

# rows of the candidates' words
LOW, HIGH, BEHIND, LOW_BACK, HIGH_BACK, LOW_ON, HIGH_ON = range(7)
ROWS = 7


@njit(nogil=True, forceinline=True)
def _sum(cost, around, words, j):
    """The edits before and after the piece of candidate j, as far as ``cost`` counts."""
    every, one = np.uint32(0xFFFFFFFF), np.uint32(1)
    behind = words[BEHIND, j]
    ahead = np.uint32(np.uint32(around) - behind)
    low = words[LOW, j]
    high = words[HIGH, j]
    on = cost(
        low, high, words[LOW_ON, j], words[HIGH_ON, j],
        np.uint32(every << behind), np.uint32(one << behind),
    )  # fmt: skip
    back = cost(
        np.uint32(low >> behind), np.uint32(high >> behind),
        words[LOW_BACK, j], words[HIGH_BACK, j],
        np.uint32(every << ahead), np.uint32(one << ahead),
    )  # fmt: skip
    return np.uint32(on + back)


@njit(nogil=True, inline="always")
def _passing(cost, distance, around, count, words, passed):
    """The loop for one ``cost``: a choice inside the loop would prevent vectorization."""
    for j in range(count):
        passed[j] = _sum(cost, around, words, j) <= np.uint32(distance)


@njit(cache=True, nogil=True)
def passing(distance, around, count, words, passed):
    """passed[j] = 1 where candidate j can be within the distance, else 0.

    around: symbols of a pattern beside the piece, k - w. words: uint32[ROWS, >= count]: the two
    planes of the entry, the symbols after the piece, and the text's planes before and after the
    piece.
    """
    if distance == 0:
        _passing(_cost0, 0, around, count, words, passed)
    elif distance == 1:
        _passing(_cost1, 1, around, count, words, passed)
    elif distance == 2:
        _passing(_cost2, 2, around, count, words, passed)
    elif distance == 3:
        _passing(_cost3, 3, around, count, words, passed)
    else:
        _passing(_cost4, 4, around, count, words, passed)
