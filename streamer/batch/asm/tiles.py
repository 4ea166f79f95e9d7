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
column (6 planes for m = 32), and for the text 512 loads with two tests and a look-up each, 2 x 768
for the exchanges and 64 x 4 stores a block of 64 columns.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from streamer.batch.asm.lanes import COLUMNS, cells, count
from streamer.batch.asm.turning import (
    bases,
    code_gaps,
    code_planes,
    letter_gaps,
    letter_planes,
    transpose,
)
from streamer.batch.asm.words import LANES, ROW, WORDS
from trie.codes import GAP
from trie.intrinsics import trailing_zeros

BLOCK = 64
"""Columns that are turned into lanes at once."""


@njit(cache=True, nogil=True)
def _edge(symbols, table, first, planes, place):  # type: ignore[no-untyped-def]
    """64 symbols that lie in part outside of the text, as gap codes; codes of all, or-ed."""
    seen = np.uint8(GAP)
    bits = np.zeros(3, np.uint64)
    bits[2] = ~np.uint64(0)
    if first + 64 > 0 and first < symbols.size:
        seen = np.uint8(0)
        bits[2] = 0
        for i in range(64):
            position = first + i
            code = table[symbols[position]] if 0 <= position < symbols.size else np.uint8(GAP)
            seen |= code
            for plane in range(3):
                bit = np.uint64(code >> np.uint8(plane) & np.uint8(1))
                bits[plane] |= bit << np.uint64(i)
    for plane in range(3):
        planes[place + plane * ROW] = bits[plane]
    return seen


@njit(cache=True, nogil=True)
def slice_text(symbols, table, letters, begin, lead_blocks, span_blocks, planes, equal):  # type: ignore[no-untyped-def]
    """Fill ``equal`` of the tile whose first end is begin + 1, ``lead_blocks`` blocks before it.

    symbols: letters, or if not ``letters`` base codes; table uint8[256]: the code of each. planes
    uint64[3 * ROW * blocks]: scratch. Not 0 if a symbol is none.
    """
    size = 3 * ROW
    first = lead_blocks * size
    stride = BLOCK * span_blocks
    whole = max(0, min(LANES, (symbols.size - begin) // stride))
    if letters:
        other = letter_planes(symbols, begin, whole, span_blocks, planes, first)
    else:
        other = code_planes(symbols, begin, whole, span_blocks, planes, first)
    edges = np.uint8(0)
    for lane in range(whole, LANES):
        for block in range(span_blocks):
            at = begin + stride * lane + BLOCK * block
            edges |= _edge(symbols, table, at, planes, first + block * size + lane)
    # what a lane begins with is what the lane before ends with
    for block in range(lead_blocks):
        at = begin + BLOCK * (block - lead_blocks)
        edges |= _edge(symbols, table, at, planes, block * size)
    kinds = 2
    wrong = np.uint64(edges > 7)
    if other or edges > 3:
        kinds = 3
        if letters:
            wrong |= letter_gaps(symbols, begin, whole, span_blocks, planes, first + 2 * ROW)
        else:
            wrong |= code_gaps(symbols, begin, whole, span_blocks, planes, first + 2 * ROW)
    for block in range(lead_blocks - 1, -1, -1):
        for kind in range(kinds):
            at = block * size + kind * ROW
            source = at + span_blocks * size
            for lane in range(1, LANES):
                planes[at + lane] = planes[source + lane - 1]
    for block in range(lead_blocks + span_blocks):
        for kind in range(kinds):
            transpose(planes, block * size + kind * ROW)
        bases(planes, block * size, kinds - 2, equal, block * BLOCK * 4 * WORDS)
    return wrong


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
    found,
    lows,
    hit_blocks,
):
    """Ends of one pattern in a tile.

    strips int64[]: the first row of each strip, then m. planes: of a counter, low_planes: those
    that tell distances 0..k apart. A block that has hits gets them in ROW of ``found``: word
    x is lane x, bit by end; and in ``lows``, a ROW each, the low planes of their D - k - 1.
    hit_blocks int64[span_blocks]: which blocks these are. Returns how many.
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
        slot = max(0, block - lead_blocks)
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
            counter = strip * counter_words
            if strip + 1 < count_strips:
                for word in range(counter_words):
                    counters[saved + word] = counters[counter + word]
            last = strip + 1 == count_strips
            alive = np.uint64(0)
            for j in range(0, columns, COLUMNS):
                cells(
                    state, height, letters, strips[strip],
                    words, base + j * stride, stride, deltas, j * 2 * WORDS,
                )  # fmt: skip
                alive |= count(
                    counters, counter, planes, deltas, j * 2 * WORDS,
                    lows, slot * low_planes * ROW + j * WORDS, low_planes if last else 0,
                    found, slot * ROW + j * WORDS,
                )  # fmt: skip
            strip += 1
        if strip == count_strips and alive != 0 and block >= lead_blocks:
            transpose(found, slot * ROW)
            for plane in range(low_planes):
                transpose(lows, (slot * low_planes + plane) * ROW)
            hit_blocks[written] = slot
            written += 1
        column = stop
    return written
