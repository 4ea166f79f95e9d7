"""Bit-sliced search of a tile: 512 text segments in parallel, the default on the CPU.

A tile is ``512 * span`` consecutive ends; lane x of a word of 512 bits (bit x // 8 of its uint64 x
% 8) belongs to the ends from ``x * span + 1`` to ``(x + 1) * span`` of the tile, and begins
``reach`` symbols before its first end, on a column of D that is D[i, 0] = i. All arrays are
one-dimensional and C-contiguous; positions in them are counted in uint64 and are multiples of 8.

    equal   uint64[64, 4, 8]        for each column of a block the lanes whose symbol is A, C, G, T
    state   uint64[m, 2, 8]         vp, vm of each row       (``cells``)
    deltas  uint64[64, 2, 8]        hp, hm of 64 columns, handed from strip to strip

One cell of the matrix D (WsPASM paper, equation 1), in differences:

    vp, vm   D[i, j-1] - D[i-1, j-1] is +1, -1        hp, hm   D[i-1, j] - D[i-1, j-1] is +1, -1
    z        D[i, j] = D[i-1, j-1]: the letters are equal, or vm, or hm
    hp' = vm | ~(z | vp)   hm' = z & vp               vp' = hm | ~(z | hp)   vm' = z & hp

The rows of a pattern are cut into strips whose state stays in the L1 cache. The score at the bottom
of each strip is followed. While it is above k in all lanes of a block, and has been for as long as
a path can stay in the strip below, the strips below are skipped: by equation 1 every value there is
above k too. When the score drops again, they restart from D[bottom] + 1, 2, ..., which is correct
for every path that still matters.

The scan prefetches the letters of the next tile, a cache line every few nanoseconds: a core has
some 16 requests in flight, and waits if it issues them faster.

Operations of 512 bits: 5 per row and column with three-input logic (AVX-512), eleven without, 2 per
column and plane of the score (6 planes for m = 32), and for the text, per block of 64 columns, 512
loads with two tests and a look-up each, 2 x 768 for the exchanges and 64 x 4 stores.

Hits are converted to ends and distances in text order, without a branch that depends on where they
are. A tile's ends are ordered by block, then lane; the text's by lane:

    pack_block   as soon as a block has been scanned, while it is in the L1 cache: two bytes a hit,
                 its bit and its distance's low digits, and for each lane where its hits begin
    take_found   when the tile is done: which lanes have hits in which blocks, lane by lane, and
                 their bytes widened to ends and distances

    marks    uint8[64, pitch]    bit l of group g, block b: lane 8 g + l has hits in b
    infos    uint32[span, 512]   first hit of the lane in the block, << 7 | their number
    places   uint8[span, PITCH]  the hits' bits, lane by lane
    digits   uint8[8-bit digits, span, PITCH]

Blocks are numbered among those with hits.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer.batch.asm import lane_planes
from trie.cpu.intrinsics import load_now, prefetch_far, trailing_zeros
from trie.cpu.jit import njit
from trie.cpu.vectors import (
    WORDS,
    any_of,
    common,
    complement,
    either,
    exclusive_or,
    load,
    majority,
    marked,
    occupied,
    or_neither,
    spread,
    store,
    without,
)

COLUMNS = 4
"""Text positions per call of ``cells`` and ``count``: a row is loaded once for four."""


@njit(cache=True, nogil=True, forceinline=True)
def _cell(vp, vm, hp, hm, equal):
    z = any_of(equal, vm, hm)
    return or_neither(hm, z, hp), common(z, hp), or_neither(vm, z, vp), common(z, vp)


@njit(cache=True, nogil=True, forceinline=True)
def cells(
    state, rows, letters, first, equal, equal_at, stride, deltas, deltas_at, top, text, ahead
):
    """Compute ``rows`` rows of COLUMNS columns of D.

    state: (vp, vm) per row, from row ``first`` on. letters int64[]: the offset of row i's letter
    within a column of ``equal``, whose columns are ``stride`` apart, from ``equal_at`` on. deltas:
    (hp, hm) per column from ``deltas_at`` on; in: those above the first row, 0 if that is the
    ``top`` row; out: those of the last row. text uint8[]: each row prefetches a cache line from
    ``ahead`` on; memory keeps up with that rate.
    """
    hp0 = hm0 = hp1 = hm1 = hp2 = hm2 = hp3 = hm3 = spread(np.uint64(0))
    if not top:
        hp0, hm0 = load(deltas, deltas_at), load(deltas, deltas_at + WORDS)
        hp1, hm1 = load(deltas, deltas_at + 2 * WORDS), load(deltas, deltas_at + 3 * WORDS)
        hp2, hm2 = load(deltas, deltas_at + 4 * WORDS), load(deltas, deltas_at + 5 * WORDS)
        hp3, hm3 = load(deltas, deltas_at + 6 * WORDS), load(deltas, deltas_at + 7 * WORDS)
    for i in range(rows):
        prefetch_far(text, ahead + i * lane_planes.LINE)
        row = first + i
        at = row * (2 * WORDS)
        vp, vm = load(state, at), load(state, at + WORDS)
        own = equal_at + letters[np.uint64(row)]
        vp, vm, hp0, hm0 = _cell(vp, vm, hp0, hm0, load(equal, own))
        vp, vm, hp1, hm1 = _cell(vp, vm, hp1, hm1, load(equal, own + stride))
        vp, vm, hp2, hm2 = _cell(vp, vm, hp2, hm2, load(equal, own + 2 * stride))
        vp, vm, hp3, hm3 = _cell(vp, vm, hp3, hm3, load(equal, own + 3 * stride))
        store(state, at, vp)
        store(state, at + WORDS, vm)
    _store_pairs(deltas, deltas_at, hp0, hm0, hp1, hm1)
    _store_pairs(deltas, deltas_at + 4 * WORDS, hp2, hm2, hp3, hm3)


@njit(cache=True, nogil=True, forceinline=True)
def _store_pairs(words, at, a, b, c, d):
    store(words, at, a)
    store(words, at + WORDS, b)
    store(words, at + 2 * WORDS, c)
    store(words, at + 3 * WORDS, d)


@njit(cache=True, nogil=True, forceinline=True)
def _add(plane, adding, carry):
    """Return the sum of a full adder and its carry."""
    return exclusive_or(plane, adding, carry), majority(adding, carry, plane)


@njit(cache=True, nogil=True, forceinline=True)
def count(counters, at, planes, deltas, deltas_at, low, low_at, low_planes, hits, hits_at):
    """Follow the score of the last row over COLUMNS columns; return a uint64, zero without hits.

    counters: ``planes`` words from ``at`` on, the two's complement of D - k - 1 in 512 lanes, least
    significant bit first. Its sign bit is the hit and goes to ``hits``, a word per column; the
    lowest ``low_planes`` planes go to ``low``, a ROW each, a word per column.

    Adding hp - hm takes a full adder per plane, with second operand hp | hm, then hm, hm, ...
    """
    m0, m1 = load(deltas, deltas_at + WORDS), load(deltas, deltas_at + 3 * WORDS)
    m2, m3 = load(deltas, deltas_at + 5 * WORDS), load(deltas, deltas_at + 7 * WORDS)
    a0 = either(load(deltas, deltas_at), m0)
    a1 = either(load(deltas, deltas_at + 2 * WORDS), m1)
    a2 = either(load(deltas, deltas_at + 4 * WORDS), m2)
    a3 = either(load(deltas, deltas_at + 6 * WORDS), m3)
    c0 = c1 = c2 = c3 = s0 = s1 = s2 = s3 = spread(np.uint64(0))
    for plane in range(planes):
        place = at + plane * WORDS
        s0, c0 = _add(load(counters, place), a0, c0)
        s1, c1 = _add(s0, a1, c1)
        s2, c2 = _add(s1, a2, c2)
        s3, c3 = _add(s2, a3, c3)
        a0, a1, a2, a3 = m0, m1, m2, m3
        store(counters, place, s3)
        if plane < low_planes:
            _store_pairs(low, low_at + plane * lane_planes.ROW, s0, s1, s2, s3)
    _store_pairs(hits, hits_at, s0, s1, s2, s3)
    return occupied(either(any_of(s0, s1, s2), s3))


@njit(cache=True, nogil=True, forceinline=True)
def bases(planes, at, columns, gaps, equal, equal_at):
    """Write the lanes that hold A, C, G, T to ``equal``: four words for each column.

    planes: the columns' words for bit 0 of the codes, from ``at`` on; a ROW further those for bit 1
    and, unless ``gaps`` is 0, another ROW further those for gaps.
    """
    gap = spread(np.uint64(0))
    for column in range(columns):
        place = at + column * WORDS
        low, high = load(planes, place), load(planes, place + lane_planes.ROW)
        if gaps != 0:
            gap = load(planes, place + 2 * lane_planes.ROW)
        known_low, known_high = without(low, gap), complement(either(high, gap))
        out = equal_at + column * (4 * WORDS)
        _store_pairs(
            equal, out,
            without(known_high, low), common(known_low, known_high),
            without(without(high, gap), low), common(known_low, high),
        )  # fmt: skip


BLOCK = 64  # ends per lane and block
SLACK = lane_planes.AT_ONCE  # places after the last hit that are overwritten
PITCH = lane_planes.LANES * BLOCK + 64  # bytes from the hits of one block to those of the next
_GROUPS = lane_planes.LANES // 8
_LANE = 22
_COUNT = 7


class HitLists(NamedTuple):
    """The hits of a tile, as above, and the words of ``take_found``: uint32[512 * span + 16]."""

    marks: NDArray[np.uint8]
    infos: NDArray[np.uint32]
    places: NDArray[np.uint8]
    digits: NDArray[np.uint8]
    words: NDArray[np.uint32]


def list_sizes(span: int, low_planes: int) -> dict[str, tuple[Any, int]]:
    """Return dtype and size of each of the HitLists."""
    return {
        "marks": (np.uint8, _GROUPS * mark_pitch(span)),
        "infos": (np.uint32, span * lane_planes.LANES),
        "places": (np.uint8, span * PITCH),
        "digits": (np.uint8, max(1, -(-low_planes // 8)) * span * PITCH),
        "words": (np.uint32, lane_planes.LANES * span + lane_planes.LISTED),
    }


@njit(cache=True, nogil=True)
def mark_pitch(span):
    """Return the bytes of ``marks`` from one group of lanes to the next."""
    return -(-span // 64) * 64


@njit(cache=True, nogil=True)
def clear_beyond(marks, first, span, stop):
    """Drop hits with ends beyond ``stop``; the ends of lane 0 start at first + 1."""
    for lane in range(lane_planes.LANES):
        room = stop - (first + BLOCK * span * lane)
        if room < BLOCK:
            marks[lane] &= (np.uint64(1) << np.uint64(max(room, 0))) - np.uint64(1)


@njit(cache=True, nogil=True)
def pack_block(ends_at, lows, low_planes, number, span, lists, text, ahead):
    """Append the hits of the ``number``-th block with hits; return their number, and that of lanes.

    found uint64[512]: a word per lane, a bit per end. lows: the same for each plane, a ROW each.
    text uint8[]: each lane prefetches a cache line from ``ahead`` on (``tiles``).
    """
    marks, infos, places, digits, words = lists
    pitch = mark_pitch(span)
    full = 0
    for group in range(0, _GROUPS, 2):
        low = occupied(load(ends_at, 8 * group))
        high: np.uint64 = occupied(load(ends_at, 8 * group + 8))
        marks[group * pitch + number] = low
        marks[group * pitch + pitch + number] = high
        full += lane_planes.list_bits(words, full, np.uint32(8 * group), low | high << np.uint64(8))
    infos_at = number * lane_planes.LANES
    begin = number * PITCH
    size = 0
    for byte in range(max(1, (low_planes + 7) // 8)):
        own_digits = digits[byte * span * PITCH :]
        planes = min(8, low_planes - 8 * byte)
        size = 0
        for i in range(full):
            lane = np.int64(words[i])
            prefetch_far(text, ahead + lane_planes.LINE * i)
            count = lane_planes.pack_word(
                ends_at[lane], lows, 8 * byte * lane_planes.ROW + lane, lane_planes.ROW, planes,
                places, own_digits, begin + size,
            )  # fmt: skip
            infos[infos_at + lane] = np.uint32(size << _COUNT | count)
            size += count
    return size, full


@njit(cache=True, nogil=True)
def take_found(lists, blocks, span, begin, k, low_planes, ends, distances, at):
    """Write ends and distances of the hits from place ``at`` on, and SLACK more.

    blocks int64[]: the blocks with hits. begin: of the tile.
    """
    marks, infos, places, digits, words = lists
    pitch = mark_pitch(span)
    full = 0
    for group in range(_GROUPS):
        for first in range(0, blocks.size, 64):
            some = min(64, blocks.size - first)
            # marks after the last block are left over from another tile
            there = ~np.uint64(0) >> np.uint64(64 - some)
            for bit in range(8):
                at_mark = group * pitch + first
                bits = marked(marks, at_mark, 1 << bit)
                bits &= there
                place = (8 * group + bit) << _LANE | first
                for part in range(0, some, lane_planes.LISTED):
                    full += lane_planes.list_bits(words, full, np.uint32(place + part), bits)
                    bits >>= np.uint64(lane_planes.LISTED)
    nothing = k + 1 - (1 << low_planes)
    to = at
    for i in range(full):
        lane = np.int64(words[i]) >> np.int64(_LANE)
        number = np.int64(words[i]) & ((1 << _LANE) - 1)
        info = np.int64(infos[number * lane_planes.LANES + lane])
        source = number * PITCH + (info >> _COUNT)
        count = info & ((1 << _COUNT) - 1)
        first = begin + 1 + BLOCK * (lane * span + blocks[number])
        lane_planes.widen(places, source, first, ends, to)
        lane_planes.widen(digits, source, nothing, distances, to)
        # few words have more hits
        for more in range(lane_planes.AT_ONCE, count, lane_planes.AT_ONCE):
            lane_planes.widen(places, source + more, first, ends, to + more)
            lane_planes.widen(digits, source + more, nothing, distances, to + more)
        for byte in range(1, (low_planes + 7) // 8):
            for j in range(count):
                digit = np.int32(digits[byte * span * PITCH + source + j])
                distances[to + j] += digit << np.int32(8 * byte)
        to += count


Words = NDArray[np.uint64]


class Scratch(NamedTuple):
    """Buffers for scanning a tile: words of 512 lanes, and ``rows``.

    Besides the above: planes of the whole tile, a ROW each (``slicing``); counters of each strip;
    the offset of each row's letter within a column; words for sets of bases; and for a block its
    hits, a ROW, and the low planes of their D - k - 1, a ROW each.
    """

    planes: Words
    equal: Words
    state: Words
    deltas: Words
    counters: Words
    rows: NDArray[np.int64]
    united: Words
    found: Words
    lows: Words


def scratch_sizes(
    longest: int, counter_planes: int, sets: int, low_planes: int, blocks: int
) -> dict[str, tuple[Any, int]]:
    """Return dtype and size of each part of the Scratch.

    longest: most rows. counter_planes: of all strips of a search. sets: distinct letters of a
    search. blocks: of a tile, including its lead.
    """
    return {
        "planes": (np.uint64, blocks * 3 * lane_planes.ROW),
        "equal": (np.uint64, BLOCK * 4 * WORDS),
        "state": (np.uint64, 2 * longest * WORDS),
        "deltas": (np.uint64, 2 * BLOCK * WORDS),
        "counters": (np.uint64, 2 * counter_planes * WORDS),  # and one saved
        "rows": (np.int64, longest),
        "united": (np.uint64, sets * BLOCK * WORDS),
        "found": (np.uint64, lane_planes.ROW),
        "lows": (np.uint64, low_planes * lane_planes.ROW),
    }


@njit(cache=True, nogil=True)
def _letters(masks, letters, sets):
    """Find the offset of each row's letter within a column; return how many sets need words.

    0: the words of the four bases suffice. Otherwise ``sets`` holds the distinct letters.
    """
    distinct = 0
    plain = True
    for i in range(masks.size):
        mask = masks[i]
        plain &= mask == 1 or mask == 2 or mask == 4 or mask == 8
        known = -1
        for j in range(distinct):
            if sets[j] == mask:
                known = j
        if known < 0:
            known = distinct
            sets[distinct] = mask
            distinct += 1
        letters[i] = known * WORDS
    if not plain:
        return distinct
    for i in range(masks.size):
        letters[i] = trailing_zeros(np.uint64(masks[i])) * WORDS
    return 0


@njit(cache=True, nogil=True)
def _unite(equal, first, columns, sets, distinct, united):
    """Compute the lanes in each base set, for each column from ``first`` on."""
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
def _set_counter(counters, at, planes, value):
    for plane in range(planes):
        bits = np.uint64(0) - np.uint64((value >> plane) & 1)
        for word in range(WORDS):
            counters[at + plane * WORDS + word] = bits


@njit(cache=True, nogil=True)
def _add_to_counter(counters, source, at, planes, value):
    """Write the counter at ``source`` plus a number, in all lanes."""
    for word in range(WORDS):
        carry = np.uint64(0)
        for plane in range(planes):
            bit = np.uint64(0) - np.uint64((value >> plane) & 1)
            digit = counters[source + plane * WORDS + word]
            counters[at + plane * WORDS + word] = digit ^ bit ^ carry
            carry = (digit & bit) | (carry & (digit | bit))


@njit(cache=True, nogil=True)
def _reset(state, first, rows):
    """Set every row to one more than the row above it."""
    for row in range(first, first + rows):
        for word in range(WORDS):
            state[(2 * row) * WORDS + word] = ~np.uint64(0)
            state[(2 * row + 1) * WORDS + word] = np.uint64(0)


@njit(cache=True, nogil=True)
def _further(ahead, lines, end):
    """Return the place after those cache lines, at most ``end``."""
    return min(ahead + lane_planes.LINE * lines, end)


@njit(cache=True, nogil=True)
def _transpose_block(planes, block, kinds, text, ahead):
    """Transpose a block's words of lanes into words of columns."""
    for kind in range(kinds):
        lane_planes.transpose(
            planes,
            (3 * block + kind) * lane_planes.ROW,
            text,
            ahead + lane_planes.LINE * lane_planes.TRANSPOSE_LINES * kind,
        )


@njit(cache=True, nogil=True)
def scan(
    tile, kinds, fresh, text, ahead, ahead_end, masks, strips, k, planes, low_planes,
    scratch, sets, lists, hit_blocks, stopped,
):  # fmt: skip
    """Find a pattern's ends in a tile, in ``lists``; return the numbers of ends and of blocks.

    tile: (first end - 1, blocks of the lead, blocks per lane, last end that counts). kinds: as
    returned by ``slicing``. ``fresh``: no search has scanned this tile before. text uint8[]:
    ``ahead`` to ``ahead_end`` is needed next. strips int64[]: the first row of each strip, then m.
    planes: of a counter; low_planes: those that distinguish 0..k. hit_blocks int64[span]: receives
    the blocks with hits. stopped: uint8[1]; the scan ends once it is set.
    """
    begin, lead_blocks, span_blocks, end = tile
    symbols, equal, state, deltas, counters, letters, united, marks, lows = scratch
    rows = masks.size
    distinct = _letters(masks, letters, sets)
    count_strips = strips.size - 1
    counter_words = planes * WORDS
    saved = count_strips * counter_words
    reach = (rows + k + COLUMNS - 1) // COLUMNS * COLUMNS
    start = BLOCK * lead_blocks - reach
    if fresh:
        for block in range(start // BLOCK):
            _transpose_block(symbols, block, kinds, text, ahead)
    # with one strip, operands are made per step of columns and stay in the L1 cache
    at_once = count_strips == 1 and distinct == 0
    _set_counter(counters, 0, planes, strips[1] - k - 1)
    _reset(state, 0, strips[1])
    deepest = 0
    # last block in which the strip above had ends
    last_alive = np.full(count_strips, -1, np.int64)
    written = 0
    hits = 0
    for block in range(start // BLOCK, lead_blocks + span_blocks):
        if load_now(stopped):
            break
        column = max(0, start - block * BLOCK)
        columns = BLOCK - column
        if fresh:
            _transpose_block(symbols, block, kinds, text, ahead)
            ahead = _further(ahead, lane_planes.TRANSPOSE_LINES * kinds, ahead_end)
        if not at_once:
            bases(symbols, 3 * block * lane_planes.ROW, BLOCK, kinds - 2, equal, 0)
        stride = 4 * WORDS
        words = equal
        base = column * stride
        if distinct:
            _unite(equal, column, columns, sets, distinct, united)
            stride = distinct * WORDS
            words = united
            base = 0
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
            counter = strip * counter_words
            if strip + 1 < count_strips:
                for word in range(counter_words):
                    counters[saved + word] = counters[counter + word]
            last = strip + 1 == count_strips
            alive = np.uint64(0)
            for j in range(0, columns, COLUMNS):
                words_at = base + j * stride
                deltas_at = j * 2 * WORDS
                if at_once:
                    first = 3 * block * lane_planes.ROW + (column + j) * WORDS
                    bases(symbols, first, COLUMNS, kinds - 2, equal, 0)
                    words_at = deltas_at = 0
                cells(
                    state, height, letters, strips[strip],
                    words, words_at, stride, deltas, deltas_at, strip == 0,
                    text, ahead,
                )  # fmt: skip
                ahead = _further(ahead, height, ahead_end)
                alive |= count(
                    counters, counter, planes, deltas, deltas_at,
                    lows, j * WORDS, low_planes if last else 0, marks, j * WORDS,
                )  # fmt: skip
            strip += 1
        if strip == count_strips and alive != 0 and block >= lead_blocks:
            lane_planes.transpose(marks, 0, text, ahead)
            ahead = _further(ahead, lane_planes.TRANSPOSE_LINES, ahead_end)
            first = begin + BLOCK * (block - lead_blocks)
            if begin + lane_planes.LANES * BLOCK * span_blocks > end:
                clear_beyond(marks, first, span_blocks, end)
            for plane in range(low_planes):
                lane_planes.transpose(lows, plane * lane_planes.ROW, text, ahead)
                ahead = _further(ahead, lane_planes.TRANSPOSE_LINES, ahead_end)
            new, full = pack_block(
                marks, lows, low_planes, written, span_blocks, lists, text, ahead
            )
            ahead = _further(ahead, full, ahead_end)
            hits += new
            hit_blocks[written] = block - lead_blocks
            written += 1
    return hits, written
