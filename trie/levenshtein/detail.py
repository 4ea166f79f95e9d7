"""Verify a candidate in full: the ends it reaches, their edits and starts.

Both sides of a piece that was found are aligned (trie/levenshtein/reach.py): before the piece, for
the least cost and its largest start; after it, for the least cost of every end. Their sum is the
distance at that end among alignments that contain the piece; the least over all pieces and patterns
is the answer (trie/levenshtein). A gap code equals nothing, and no alignment leaves the read.
"""

from __future__ import annotations

import numpy as np

from trie.codes import MAX_DISTANCE
from trie.cpu.jit import njit
from trie.levenshtein import DISTANCE_SHIFT, PATTERN_SHIFT
from trie.levenshtein.planes import GAP, GAP_BACK, HIGH, HIGH_BACK, LOW, LOW_BACK, window
from trie.levenshtein.reach import CENTRE, UNREACHED, reach, sides

# LLVM by itself would not inline the larger ones, and a loop with a call is not vectorized
REACH = reach(njit(nogil=True, forceinline=True))
_before, _behind = sides(njit(nogil=True), REACH)


@njit(cache=True, nogil=True)
def write_ends(
    k, distance, width, low, high, behind, rank, planes, total, at, left, right, ends_at, out,
    places, costs,
):  # fmt: skip
    """Lower the words of every end that a candidate reaches.

    low, high: the planes of its entry; behind: how many symbols of the pattern follow the piece.
    planes: of ``total`` symbols, the piece at ``at``. left, right: symbols of the read before and
    after the piece. out: uint32, words by end; ends_at: its index of the end at the piece's last
    symbol, so the end n symbols after the piece is at ends_at + n. places, costs: as in
    trie/levenshtein/reach.py.
    """
    if window(planes[GAP], at) & ((np.uint32(1) << np.uint32(width)) - np.uint32(1)):
        return
    back = total - at
    cost, start = _before(
        np.uint32(low >> np.uint32(behind)), np.uint32(high >> np.uint32(behind)),
        window(planes[LOW_BACK], back), window(planes[HIGH_BACK], back),
        window(planes[GAP_BACK], back), k - width - behind, left, distance, places,
    )  # fmt: skip
    if cost > distance:
        return
    on = at + width
    _behind(
        low, high, window(planes[LOW], on), window(planes[HIGH], on), window(planes[GAP], on),
        behind, right, distance - cost, places, costs,
    )  # fmt: skip
    for d in range(-distance, distance + 1):
        edits = costs[CENTRE + d]
        place = ends_at + behind + d
        if edits != UNREACHED and 0 <= place < out.size:
            word = (
                (np.uint32(cost + edits) << np.uint32(DISTANCE_SHIFT))
                | (np.uint32(rank) << np.uint32(PATTERN_SHIFT))
                | np.uint32(start + d + MAX_DISTANCE)
            )
            out[place] = min(out[place], word)
