"""A candidate in full: which ends it reaches, with how many edits, and from which start.

The symbols around a piece that was found at t are aligned on both sides
(trie/levenshtein_reach.py). Before the piece the least cost and of its starts the largest; behind
it the least cost of every end. Their sum is the distance at that end among alignments that hold the
piece, and the least over all pieces and patterns is the answer (trie/levenshtein.py). Here gap
codes and the bounds of the read count too: a gap equals nothing, and no alignment leaves the read.
"""

# mypy: no-check-untyped-defs

from __future__ import annotations

import numpy as np
from numba import njit

from trie.levenshtein import DISTANCE_SHIFT, MAX_DISTANCE, PATTERN_SHIFT
from trie.levenshtein_planes import GAP, GAP_BACK, HIGH, HIGH_BACK, LOW, LOW_BACK, window
from trie.levenshtein_reach import reach

# LLVM alone would not inline the larger ones, and a loop with a call is not vectorized
REACH = reach(njit(nogil=True, forceinline=True))
_run = REACH.run
_above = REACH.above
_below = REACH.below

CENTRE = MAX_DISTANCE + 1
SCRATCH = 2 * CENTRE + 1


@njit(cache=True, nogil=True)
def _next_level(plo, phi, tlo, thi, gap, ends, edits, before, after):  # type: ignore[no-untyped-def]
    """The furthest places after ``edits`` edits, at CENTRE + diagonal, from those with one less."""
    one = np.uint32(1)
    for d in range(-edits, edits + 1):
        if d >= 0:
            x = _above(plo, phi, tlo, thi, ends, d) | (gap >> np.uint32(d))
        else:
            x = _below(plo, phi, tlo, thi, ends, -d) | (gap << np.uint32(-d))
        place = one
        if edits:
            at = CENTRE + d
            place = max(before[at - 1], max(before[at] << one, before[at + 1] << one))
        after[CENTRE + d] = _run(np.uint32(x), np.uint32(place))


@njit(cache=True, nogil=True)
def tell_ends(  # type: ignore[no-untyped-def]
    k,
    distance,
    width,
    low,
    high,
    behind,
    rank,
    planes,
    total,
    at,
    left,
    right,
    ends_at,
    out,
    levels,
):
    """Lower the words of every end that a candidate reaches.

    low, high: the planes of its entry; behind: how many symbols of the pattern follow the piece.
    planes: of ``total`` symbols, the piece at ``at``. left, right: symbols of the read before and
    behind the piece. out: uint32, words by end; ends_at: the index in it of the end at the piece's
    last symbol, so that the end after the piece and n symbols more is at ends_at + n. levels:
    uint32[2, SCRATCH].
    """
    one = np.uint32(1)
    if window(planes[GAP], at) & ((one << np.uint32(width)) - one):
        return
    ahead = k - width - behind
    before, after = levels[0], levels[1]
    ends = np.uint32(np.uint64(0xFFFFFFFF) << np.uint64(ahead))
    back = total - at
    tlo = window(planes[LOW_BACK], back)
    thi = window(planes[HIGH_BACK], back)
    gap = window(planes[GAP_BACK], back)
    plo = np.uint32(low >> np.uint32(behind))
    phi = np.uint32(high >> np.uint32(behind))
    levels[:, :] = np.uint32(0)
    cost = -1
    start = 0
    for edits in range(distance + 1):
        _next_level(plo, phi, tlo, thi, gap, ends, edits, before, after)
        for d in range(-edits, edits + 1):
            if (
                cost < 0
                and after[CENTRE + d] >= (one << np.uint32(ahead))
                and 0 <= ahead + d <= left
            ):
                cost = edits
                start = d
        if cost >= 0:
            break
        before, after = after, before
    if cost < 0:
        return
    ends = np.uint32(np.uint64(0xFFFFFFFF) << np.uint64(behind))
    tlo = window(planes[LOW], at + width)
    thi = window(planes[HIGH], at + width)
    gap = window(planes[GAP], at + width)
    levels[:, :] = np.uint32(0)
    told = np.uint32(0)
    for edits in range(distance - cost + 1):
        _next_level(low, high, tlo, thi, gap, ends, edits, before, after)
        for d in range(-edits, edits + 1):
            bit = one << np.uint32(CENTRE + d)
            used = behind + d
            if (
                not (told & bit)
                and after[CENTRE + d] >= (one << np.uint32(behind))
                and 0 <= used <= right
            ):
                told |= bit
                place = ends_at + used
                if 0 <= place < out.size:
                    word = (
                        (np.uint32(cost + edits) << np.uint32(DISTANCE_SHIFT))
                        | (np.uint32(rank) << np.uint32(PATTERN_SHIFT))
                        | np.uint32(start + d + MAX_DISTANCE)
                    )
                    out[place] = min(out[place], word)
        before, after = after, before
