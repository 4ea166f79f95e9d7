"""Candidates by the hundred: which of them can be within the distance, in vector lanes.

For each candidate the sides of the piece are aligned (trie/levenshtein_reach.py) and it passes if
some c edits suffice before the piece and D - c behind it. Gap codes count as A and reads are not
told apart here, so that what passes is only a superset, which ``tell_ends`` then looks at in full.

Operations a candidate for D edits: twice 8 (D + 1)^2 + 5 (2D + 1) and about ten, on uint32 lanes
without a branch: eight candidates an instruction with 256-bit vectors.
"""

# mypy: no-check-untyped-defs

from __future__ import annotations

import numpy as np
from numba import njit

from trie.levenshtein_detail import REACH

_levels0, _levels1, _levels2, _levels3, _levels4 = REACH.levels

# rows of the candidates' words
LOW, HIGH, BEHIND, LOW_BACK, HIGH_BACK, LOW_ON, HIGH_ON = range(7)
ROWS = 7


@njit(cache=True, nogil=True)
def passing(distance, around, count, words, passed):  # type: ignore[no-untyped-def]
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


@njit(nogil=True, inline="always")
def _sides(around, words, j):  # type: ignore[no-untyped-def]
    every = np.uint32(0xFFFFFFFF)
    behind = words[BEHIND, j]
    ahead = np.uint32(np.uint32(around) - behind)
    low = words[LOW, j]
    high = words[HIGH, j]
    return (
        low,
        high,
        np.uint32(every << behind),
        np.uint32(np.uint32(1) << behind),
        np.uint32(low >> behind),
        np.uint32(high >> behind),
        np.uint32(every << ahead),
        np.uint32(np.uint32(1) << ahead),
    )


@njit(cache=True, nogil=True)
def _passing0(around, count, words, passed):  # type: ignore[no-untyped-def]
    for j in range(count):
        low, high, ends, end, blow, bhigh, bends, bend = _sides(around, words, j)
        (a,) = _levels0(low, high, words[LOW_ON, j], words[HIGH_ON, j], ends)
        (b,) = _levels0(blow, bhigh, words[LOW_BACK, j], words[HIGH_BACK, j], bends)
        passed[j] = (a >= end) & (b >= bend)


@njit(cache=True, nogil=True)
def _passing1(around, count, words, passed):  # type: ignore[no-untyped-def]
    for j in range(count):
        low, high, ends, end, blow, bhigh, bends, bend = _sides(around, words, j)
        a, b = _levels1(low, high, words[LOW_ON, j], words[HIGH_ON, j], ends)
        p, q = _levels1(blow, bhigh, words[LOW_BACK, j], words[HIGH_BACK, j], bends)
        passed[j] = ((a >= end) & (q >= bend)) | ((b >= end) & (p >= bend))


@njit(cache=True, nogil=True)
def _passing2(around, count, words, passed):  # type: ignore[no-untyped-def]
    for j in range(count):
        low, high, ends, end, blow, bhigh, bends, bend = _sides(around, words, j)
        a, b, c = _levels2(low, high, words[LOW_ON, j], words[HIGH_ON, j], ends)
        p, q, r = _levels2(blow, bhigh, words[LOW_BACK, j], words[HIGH_BACK, j], bends)
        passed[j] = (
            ((a >= end) & (r >= bend)) | ((b >= end) & (q >= bend)) | ((c >= end) & (p >= bend))
        )


@njit(cache=True, nogil=True)
def _passing3(around, count, words, passed):  # type: ignore[no-untyped-def]
    for j in range(count):
        low, high, ends, end, blow, bhigh, bends, bend = _sides(around, words, j)
        a, b, c, d = _levels3(low, high, words[LOW_ON, j], words[HIGH_ON, j], ends)
        p, q, r, s = _levels3(blow, bhigh, words[LOW_BACK, j], words[HIGH_BACK, j], bends)
        passed[j] = (
            ((a >= end) & (s >= bend))
            | ((b >= end) & (r >= bend))
            | ((c >= end) & (q >= bend))
            | ((d >= end) & (p >= bend))
        )


@njit(cache=True, nogil=True)
def _passing4(around, count, words, passed):  # type: ignore[no-untyped-def]
    for j in range(count):
        low, high, ends, end, blow, bhigh, bends, bend = _sides(around, words, j)
        a, b, c, d, e = _levels4(low, high, words[LOW_ON, j], words[HIGH_ON, j], ends)
        p, q, r, s, t = _levels4(blow, bhigh, words[LOW_BACK, j], words[HIGH_BACK, j], bends)
        passed[j] = (
            ((a >= end) & (t >= bend))
            | ((b >= end) & (s >= bend))
            | ((c >= end) & (r >= bend))
            | ((d >= end) & (q >= bend))
            | ((e >= end) & (p >= bend))
        )
