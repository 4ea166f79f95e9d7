"""From the bit-sliced hits of a tile (``tiles``) to ends and distances in the order of the text.

In three passes none of which has a branch that depends on where the hits are: which words have
hits, where in the text these are, and what their distances are.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from streamer.batch.asm.tiles import BLOCK
from streamer.batch.asm.words import LANES, ROW
from trie.intrinsics import popcount, trailing_zeros

SLACK = 4
"""Places behind the last hit that are written."""

_LANE = 22


@njit(cache=True, nogil=True)
def count_found(found, hit_blocks, span, begin, stop, words):  # type: ignore[no-untyped-def]
    """Hits with ends up to ``stop`` in ``found``; those beyond it are cleared.

    words uint32[512 * span + 1]: gets which words have hits, lane << _LANE | block, ascending.
    Returns how many hits and how many words.
    """
    if begin + LANES * span * BLOCK > stop:
        for block in hit_blocks:
            for lane in range(LANES):
                room = stop - (begin + BLOCK * (lane * span + block))
                if room < BLOCK:
                    keep = (np.uint64(1) << np.uint64(max(room, 0))) - np.uint64(1)
                    found[block * ROW + lane] &= keep
    total = np.uint64(0)
    for block in hit_blocks:
        first = block * ROW
        for bits in found[first : first + LANES]:
            total += popcount(bits)
    full = np.uint64(0)
    for lane in range(np.uint64(LANES)):
        for block in hit_blocks:
            at = np.uint64(block)
            words[full] = lane << np.uint64(_LANE) | at
            full += np.uint64(found[at * np.uint64(ROW) + lane] != 0)
    return np.int64(total), np.int64(full)


@njit(cache=True, nogil=True)
def take_found(found, lows, words, span, begin, k, low_planes, places, ends, distances, at):  # type: ignore[no-untyped-def]
    """Write ends and distances of the hits in these words from place ``at`` on, and SLACK more.

    places uint32[hits + SLACK]: scratch.
    """
    one = np.uint64(1)
    low_words = np.uint64(low_planes * ROW)
    to = np.uint64(at)
    size = np.uint64(0)
    for word in words:
        lane = np.uint64(word) >> np.uint64(_LANE)
        block = np.uint64(word) & np.uint64((1 << _LANE) - 1)
        bits = found[block * np.uint64(ROW) + lane]
        first = np.uint64(begin + 1) + np.uint64(BLOCK) * (lane * np.uint64(span) + block)
        low = (block * low_words + lane) << np.uint64(6)
        count = popcount(bits)
        done = np.uint64(0)
        while True:
            # most words have few hits: what is too many is written over
            for i in range(np.uint64(SLACK)):
                bit = trailing_zeros(bits)
                ends[to + done + i] = first + bit
                places[size + done + i] = low | bit
                bits &= bits - one
            done += np.uint64(SLACK)
            if done >= count:
                break
        to += count
        size += count
    nothing = k + 1 - (1 << low_planes)
    for i in range(size):
        place = np.uint64(places[i])
        word = place >> np.uint64(6)
        bit = place & np.uint64(63)
        distance = np.uint64(0)
        for plane in range(np.uint64(low_planes)):
            distance |= (lows[word + plane * np.uint64(ROW)] >> bit & one) << plane
        distances[np.uint64(at) + i] = np.int64(distance) + nothing
