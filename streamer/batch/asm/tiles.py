"""Bit-sliced search of a tile: 512 text segments side by side, the default on the CPU.

A tile is ``512 * span`` consecutive ends; lane x of a bit-sliced word belongs to the ends from
``x * span + 1`` to ``(x + 1) * span`` of the tile, and begins ``reach`` symbols before its first
end, on a column of D that is D[i, 0] = i. What the scan reads:

    equal   uint64[columns, 4, 8]   for each column the lanes whose symbol is A, C, G, T
    state   uint64[m, 2, 8]         vp, vm of each row       (streamer/batch/asm/lanes.py)
    deltas  uint64[64, 2, 8]        hp, hm of 64 columns, handed from strip to strip

The rows of a pattern are cut into strips whose state stays in the L1 cache. The score at the bottom
of each strip is followed; while it is above k in all lanes of a block, and has been for as long as
a path can stay in the strip below, the strips below are not computed: by equation 1 every value
there is above k too. When the score comes down they start again from D[bottom] + 1, 2, ..., which
is right for every path that is still of interest. So long patterns with small k cost little more
than their first strip.

Operations, of 512 bits: 5 with three-input logic a row and column, 2 a plane of the score and
column (6 planes for m = 32), and for the text 3 x 64 loads and tests, 2 x 8 x 24 shuffles / 8,
2 x 960 exchanges and 64 x 4 stores a block of 64 columns.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from streamer.batch.asm.lanes import (
    COLUMNS,
    LANES,
    WORDS,
    base_planes,
    bases,
    cells,
    count,
    gap_planes,
    gather,
    transpose,
)
from trie.intrinsics import popcount, trailing_zeros

BLOCK = 64
"""Columns that are turned into lanes at once."""

FOUND_WORDS = LANES + WORDS
"""Words of a block's hits, so that a lane's of different blocks share no set of the cache."""


@njit(cache=True, nogil=True)
def _edge_planes(codes, first, planes, at):  # type: ignore[no-untyped-def]
    """Bit planes of 512 codes some of which lie outside of the text, as gap codes."""
    for word in range(at, at + 8):
        outside = first + 64 * (word - at) + 64 <= 0 or first + 64 * (word - at) >= codes.size
        for plane in range(3):
            bits = np.uint64(0)
            if outside and plane == 2:
                bits = ~bits
            for i in range(0 if outside else 64):
                position = first + 64 * (word - at) + i
                code = codes[position] if 0 <= position < codes.size else np.uint8(4)
                bits |= np.uint64(code >> np.uint8(plane) & np.uint8(1)) << np.uint64(i)
            planes[plane * 8 * LANES + word] = bits


@njit(cache=True, nogil=True)
def slice_text(codes, begin, lead_blocks, span_blocks, planes, turned, equal):  # type: ignore[no-untyped-def]
    """Fill ``equal`` of the tile whose first end is begin + 1, ``lead_blocks`` blocks before it.

    planes uint64[3 * 8 * 512] and turned uint64[8 * 3 * 512]: scratch.
    """
    size = 64 * WORDS
    apart = 8 * LANES
    blocks = lead_blocks + span_blocks
    for first in range(0, blocks, 8):
        start = begin + BLOCK * (first - lead_blocks)
        last = start + BLOCK * span_blocks * (LANES - 1)
        gaps = np.uint64(start < 0 or last + 8 * BLOCK > codes.size)
        for lane in range(LANES):
            at = start + BLOCK * span_blocks * lane
            if at >= 0 and at + 8 * BLOCK <= codes.size:
                gaps |= base_planes(codes, at, planes, 8 * lane, apart)
            else:
                _edge_planes(codes, at, planes, 8 * lane)
        kinds = 2
        if gaps:
            kinds = 3
            for lane in range(LANES):
                at = start + BLOCK * span_blocks * lane
                if at >= 0 and at + 8 * BLOCK <= codes.size:
                    gap_planes(codes, at, planes, 2 * apart + 8 * lane, 0)
        for kind in range(kinds):
            gather(planes, kind * apart, 8, turned, kind * size, 3 * size)
        for block in range(first, min(first + 8, blocks)):
            at = (block - first) * 3 * size
            for kind in range(kinds):
                transpose(turned, at + kind * size)
            bases(turned, at, size, kinds - 2, equal, block * BLOCK * 4 * WORDS)


@njit(cache=True, nogil=True)
def _letters(masks, letters, sets):  # type: ignore[no-untyped-def]
    """Where each row's letter stands among the words of a column; the sets that need words made.

    0: the four bases do, their own words are used. Otherwise ``sets`` holds the distinct letters.
    """
    distinct = 0
    plain = True
    for i in range(masks.size):
        mask = masks[i]
        plain &= mask == 1 or mask == 2 or mask == 4 or mask == 8
        found = -1
        for j in range(distinct):
            if sets[j] == mask:
                found = j
        if found < 0:
            found = distinct
            sets[distinct] = mask
            distinct += 1
        letters[i] = found * WORDS
    if not plain:
        return distinct
    for i in range(masks.size):
        letters[i] = trailing_zeros(np.uint64(masks[i])) * WORDS
    return 0


@njit(cache=True, nogil=True)
def _unite(equal, first, columns, sets, distinct, united):  # type: ignore[no-untyped-def]
    """For each column and each set of bases the lanes whose symbol is in it."""
    none = np.uint64(0)
    for j in range(distinct):
        a = none - np.uint64(sets[j] & 1)
        c = none - np.uint64(sets[j] >> 1 & 1)
        g = none - np.uint64(sets[j] >> 2 & 1)
        t = none - np.uint64(sets[j] >> 3 & 1)
        for column in range(columns):
            at = (first + column) * 4 * WORDS
            out = (column * distinct + j) * WORDS
            for word in range(WORDS):
                united[out + word] = (
                    (equal[at + word] & a)
                    | (equal[at + WORDS + word] & c)
                    | (equal[at + 2 * WORDS + word] & g)
                    | (equal[at + 3 * WORDS + word] & t)
                )


@njit(cache=True, nogil=True)
def _set_counter(counters, at, planes, value):  # type: ignore[no-untyped-def]
    for plane in range(planes):
        bits = np.uint64(0) - np.uint64((value >> plane) & 1)
        for word in range(WORDS):
            counters[at + plane * WORDS + word] = bits


@njit(cache=True, nogil=True)
def _add_to_counter(counters, source, at, planes, value):  # type: ignore[no-untyped-def]
    """The counter at ``source`` plus a number, in all lanes."""
    for word in range(WORDS):
        carry = np.uint64(0)
        for plane in range(planes):
            bit = np.uint64(0) - np.uint64((value >> plane) & 1)
            one = counters[source + plane * WORDS + word]
            counters[at + plane * WORDS + word] = one ^ bit ^ carry
            carry = (one & bit) | (carry & (one | bit))


@njit(cache=True, nogil=True)
def _reset(state, first, rows):  # type: ignore[no-untyped-def]
    """Every row is one more than the row above it."""
    for row in range(first, first + rows):
        for word in range(WORDS):
            state[(2 * row) * WORDS + word] = ~np.uint64(0)
            state[(2 * row + 1) * WORDS + word] = np.uint64(0)


@njit(cache=True, nogil=True)
def scan(  # type: ignore[no-untyped-def]
    equal,
    lead_blocks,
    span_blocks,
    masks,
    strips,
    k,
    planes,
    low_planes,
    state,
    deltas,
    counters,
    letters,
    sets,
    united,
    lows,
    hits,
    found,
    hit_blocks,
):
    """Ends of one pattern in a tile.

    strips int64[]: the first row of each strip, then m. planes: of a counter, low_planes: those
    that tell distances 0..k apart. lows uint64[low_planes * 512] and hits uint64[512] are scratch.
    found uint64[1 + low_planes, span_blocks, FOUND_WORDS]: word x of a block gets the hits of lane
    x, bit by end, then the low planes of their D - k - 1. hit_blocks int64[span_blocks]: which
    blocks were written. Returns how many.
    """
    rows = masks.size
    distinct = _letters(masks, letters, sets)
    count_strips = strips.size - 1
    counter_words = planes * WORDS
    saved = count_strips * counter_words
    reach = (rows + k + COLUMNS - 1) // COLUMNS * COLUMNS
    column = 64 * lead_blocks - reach
    _set_counter(counters, 0, planes, strips[1] - k - 1)
    _reset(state, 0, strips[1])
    deepest = 0
    last_alive = np.full(count_strips, -1, np.int64)  # the block in which the strip above was
    written = 0
    while column < 64 * (lead_blocks + span_blocks):
        block = column // BLOCK
        stop = (block + 1) * BLOCK
        columns = stop - column
        stride = 4 * WORDS
        words = equal
        base = column * stride
        if distinct:
            _unite(equal, column, columns, sets, distinct, united)
            stride = distinct * WORDS
            words = united
            base = 0
        deltas[: columns * 2 * WORDS] = 0
        while deepest > 0 and (block - last_alive[deepest]) * BLOCK > (
            strips[deepest + 1] - strips[deepest] + k + BLOCK
        ):
            deepest -= 1
        strip = 0
        alive = np.uint64(0)
        while strip < count_strips:
            height = strips[strip + 1] - strips[strip]
            if strip > deepest:
                if alive == 0:
                    break
                deepest = strip
                _reset(state, strips[strip], height)
                _add_to_counter(counters, saved, strip * counter_words, planes, height)
            if strip > 0 and alive != 0:
                last_alive[strip] = block
            at = strip * counter_words
            if strip + 1 < count_strips:
                for word in range(counter_words):
                    counters[saved + word] = counters[at + word]
            last = strip + 1 == count_strips
            alive = np.uint64(0)
            for j in range(0, columns, COLUMNS):
                cells(
                    state, height, letters, strips[strip],
                    words, base + j * stride, stride, deltas, j * 2 * WORDS,
                )  # fmt: skip
                alive |= count(
                    counters, at, planes, deltas, j * 2 * WORDS,
                    lows, j * WORDS, low_planes if last else 0, hits, j * WORDS,
                )  # fmt: skip
            strip += 1
        if strip == count_strips and alive != 0 and block >= lead_blocks:
            _to_text_order(hits, 0, found[0, block - lead_blocks])
            for plane in range(low_planes):
                _to_text_order(lows, plane * 64 * WORDS, found[1 + plane, block - lead_blocks])
            hit_blocks[written] = block - lead_blocks
            written += 1
        column = stop
    return written


@njit(cache=True, nogil=True)
def _to_text_order(words, at, out):  # type: ignore[no-untyped-def]
    """Turn the 64 columns of a block into the words of 512 segments."""
    transpose(words, at)
    for lane in range(LANES):
        out[lane] = words[at + lane]


@njit(cache=True, nogil=True)
def count_found(hits, hit_blocks, begin, stop, places):  # type: ignore[no-untyped-def]
    """Hits with ends up to ``stop`` in ``found[0]``; those beyond it are cleared.

    places int64[512 * span]: gets where the words with hits are (block * 512 + lane) in the order
    of the text. Returns how many hits and how many words. No branch depends on the hits.
    """
    span = 64 * hits.shape[0]
    if begin + LANES * span > stop:
        for block in hit_blocks:
            for lane in range(LANES):
                room = stop - (begin + lane * span + 64 * block)
                if room < 64:
                    keep = (np.uint64(1) << np.uint64(max(room, 0))) - np.uint64(1)
                    hits[block, lane] &= keep
    total = np.int64(0)
    words = np.int64(0)
    for lane in range(LANES):
        for block in hit_blocks:
            bits = hits[block, lane]
            total += np.int64(popcount(bits))
            places[words] = block * LANES + lane
            words += np.int64(bits != 0)
    return total, words


@njit(cache=True, nogil=True)
def take_found(found, places, begin, k, low_planes, ends, distances, at):  # type: ignore[no-untyped-def]
    """Write the hits of the words at those places from place ``at`` on, in order."""
    nothing = k + 1 - (1 << low_planes)
    span = 64 * found.shape[1]
    for place in places:
        block = place // LANES
        lane = place % LANES
        bits = found[0, block, lane]
        first = begin + lane * span + 64 * block + 1
        while True:
            bit = trailing_zeros(bits)
            distance = np.uint64(0)
            for plane in range(low_planes):
                low = found[1 + plane, block, lane] >> bit & np.uint64(1)
                distance |= low << np.uint64(plane)
            ends[at] = first + np.int64(bit)
            distances[at] = np.int64(distance) + nothing
            at += 1
            bits &= bits - np.uint64(1)
            if bits == 0:
                break
