"""Candidates by the hundred: which of them can be within the distance, in vector lanes.

For each candidate the sides of the piece are aligned (trie/levenshtein/reach.py) and it passes if
some c edits suffice before the piece and D - c behind it. Gap codes count as A and reads are not
told apart here, so that what passes is only a superset, which ``tell_ends`` then looks at in full.

Operations a candidate for D edits: twice 8 (D + 1)^2 + 5 (2D + 1) and about ten, on uint32 lanes
without a branch: eight candidates an instruction with 256-bit vectors.
"""

from __future__ import annotations

import numpy as np

from trie.cpu.jit import njit
from trie.levenshtein.detail import REACH

_cost0, _cost1, _cost2, _cost3, _cost4 = REACH.costs

# rows of the candidates' words
LOW, HIGH, BEHIND, LOW_BACK, HIGH_BACK, LOW_ON, HIGH_ON = range(7)
ROWS = 7


@njit(cache=True, nogil=True)
def passing(distance, around, count, words, passed):
    """passed[j] = 1 where candidate j can be within the distance, else 0.

    around: symbols of a pattern beside the piece, k - w. words: uint32[ROWS, >= count]: the two
    planes of the entry, the symbols behind the piece, and the text's planes before and behind the
    piece.
    """
    if distance == 0:
        _passing0(around, count, words, passed)
    elif distance == 1:
        _passing1(around, count, words, passed)
    elif distance == 2:
        _passing2(around, count, words, passed)
    elif distance == 3:
        _passing3(around, count, words, passed)
    else:
        _passing4(around, count, words, passed)


@njit(nogil=True, forceinline=True)
def _sum(cost, around, words, j):
    """The edits before and behind the piece of candidate j, as far as ``cost`` counts."""
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


@njit(cache=True, nogil=True)
def _passing0(around, count, words, passed):
    for j in range(count):
        passed[j] = _sum(_cost0, around, words, j) <= np.uint32(0)


@njit(cache=True, nogil=True)
def _passing1(around, count, words, passed):
    for j in range(count):
        passed[j] = _sum(_cost1, around, words, j) <= np.uint32(1)


@njit(cache=True, nogil=True)
def _passing2(around, count, words, passed):
    for j in range(count):
        passed[j] = _sum(_cost2, around, words, j) <= np.uint32(2)


@njit(cache=True, nogil=True)
def _passing3(around, count, words, passed):
    for j in range(count):
        passed[j] = _sum(_cost3, around, words, j) <= np.uint32(3)


@njit(cache=True, nogil=True)
def _passing4(around, count, words, passed):
    for j in range(count):
        passed[j] = _sum(_cost4, around, words, j) <= np.uint32(4)
