"""Find a hit's start and CIGAR: one optimal alignment of the pattern up to an end.

It is computed from the end leftwards, in the band of d diagonals on either side that an alignment
of cost d cannot leave: (m + 1)(2 d + 1) cells per hit.
"""

import numpy as np
from numpy.typing import NDArray

from trie.cpu.jit import njit

HITS_AT_ONCE = 4096


def align(
    codes: NDArray[np.uint8],
    begins: NDArray[np.int64],
    ends: NDArray[np.int64],
    distances: NDArray[np.int32],
    patterns: NDArray[np.int32],
    masks: NDArray[np.uint8],
    offsets: NDArray[np.int64],
) -> tuple[NDArray[np.int64], list[str]]:
    """Return starts (int64) and CIGARs (``=XID``, in text orientation) of hits of known distance.

    codes: the text. begins int64: the earliest start of each hit's alignment. patterns int32: hit i
    is of the pattern masks[offsets[p]:offsets[p + 1]] with p = patterns[i].
    """
    starts = np.empty(ends.size, dtype=np.int64)
    cigars: list[str] = []
    for first in range(0, ends.size, HITS_AT_ONCE):
        part = slice(first, first + HITS_AT_ONCE)
        lowest, text, cuts = _align(
            codes, begins[part], ends[part], distances[part], patterns[part], masks, offsets
        )
        starts[part] = lowest
        letters = text.tobytes().decode()
        cigars += [letters[a:b] for a, b in zip(cuts[:-1], cuts[1:], strict=True)]
    return starts, cigars


@njit(cache=True, nogil=True)
def _align(codes, begins, ends, distances, patterns, masks, offsets):
    room = 0
    rows = 0
    widest = 0
    for hit in range(ends.size):
        letters = offsets[patterns[hit] + 1] - offsets[patterns[hit]]
        room += 2 * (letters + distances[hit])  # a run of length r takes at most 2 r characters
        rows = max(rows, letters)
        widest = max(widest, distances[hit])
    starts = np.empty(ends.size, np.int64)
    text = np.empty(room, np.uint8)
    cuts = np.zeros(ends.size + 1, np.int64)
    cost = np.empty((rows + 1, 2 * widest + 3), np.int32)
    at = 0
    for hit in range(ends.size):
        pattern = masks[offsets[patterns[hit]] : offsets[patterns[hit] + 1]]
        d = distances[hit]
        end = ends[hit]
        length = _fill(codes, begins[hit], end, pattern, d, cost)
        starts[hit] = end - length
        at = _trace(codes, end, pattern, d, length, cost, text, at)
        cuts[hit + 1] = at
    return starts, text[:at], cuts


@njit(cache=True, nogil=True, inline="always")
def _alike(codes, end, pattern, i, j):
    """Return whether the i-th last pattern letter matches the j-th last symbol before the end."""
    return (pattern[pattern.size - i] >> codes[end - j]) & 1 == 1


@njit(cache=True, nogil=True)
def _fill(codes, begin, end, pattern, d, cost):
    """Fill cost[i, j - i + d + 1]: last i letters, last j symbols; return the best j for all."""
    far = np.int32(1 << 30)
    rows = pattern.size
    longest = end - begin
    cost[0, :] = far
    for j in range(min(d, longest) + 1):
        cost[0, j + d + 1] = j
    for i in range(1, rows + 1):
        cost[i, 0] = far
        cost[i, 2 * d + 2] = far
        for j in range(i - d, i + d + 1):
            place = j - i + d + 1
            value = far
            if j == 0:
                value = np.int32(i)
            elif 0 < j <= longest:
                value = cost[i - 1, place] + np.int32(not _alike(codes, end, pattern, i, j))
                value = min(value, cost[i - 1, place + 1] + 1, cost[i, place - 1] + 1)
            cost[i, place] = value
    best = d + 1
    for place in range(1, 2 * d + 2):
        if cost[rows, place] < cost[rows, best]:
            best = place
    return best + rows - d - 1


@njit(cache=True, nogil=True)
def _trace(codes, end, pattern, d, length, cost, text, at):
    """Write the CIGAR from the start of the text; of equal choices, matches come first."""
    i = pattern.size
    j = length
    running = np.uint8(0)
    run = 0
    while i > 0 or j > 0:
        place = j - i + d + 1
        here = cost[i, place]
        if i > 0 and j > 0 and _alike(codes, end, pattern, i, j) and cost[i - 1, place] == here:
            operation = np.uint8(61)  # =
        elif i > 0 and j > 0 and cost[i - 1, place] + 1 == here:
            operation = np.uint8(88)  # X
        elif i > 0 and cost[i - 1, place + 1] + 1 == here:
            operation = np.uint8(73)  # I
        else:
            operation = np.uint8(68)  # D
        i -= operation != 68
        j -= operation != 73
        if operation != running:
            at = _put(text, at, run, running)
            running = operation
            run = 0
        run += 1
    return _put(text, at, run, running)


@njit(cache=True, nogil=True)
def _put(text, at, run, operation):
    if run == 0:
        return at
    size = 1
    ten = 10
    while run >= ten:
        size += 1
        ten *= 10
    for digit in range(size - 1, -1, -1):
        text[at + digit] = np.uint8(48 + run % 10)
        run //= 10
    text[at + size] = operation
    return at + size + 1
