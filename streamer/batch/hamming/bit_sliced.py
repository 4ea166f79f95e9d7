"""The method ``bit-sliced``: 64 windows per word, with mismatches counted in carry-save form.

A block holds 2,048 windows in 4 vectors of 8 words (trie/cpu/vectors.py). Word w of vector v holds
the 64 windows from 256 w + 64 v of the block on, bit i the i-th of them. So the word that follows a
word is at the same place in the next vector, and a shift by any number of symbols is one funnel
shift per vector.

    planes[c, v]    bit i: the symbol there is not the base c (a gap code is none)
    table[c, j, v]  the same, j symbols on: bit i counts against window i if a pattern has c at j
    counter         bit i of ones, twos, fours, ...: the binary count of window i

Adding four rows of the table takes 3 full adders (ones, ones, twos), a half adder (fours) and the
carry out of the top plane: 8 operations with three-input logic for 4 symbols and 512 windows. The
counter starts at 2^planes - 1 - k (``begin``), so its sticky carry means "more than k".

Memory: 256 bytes per base and pattern symbol in use, below 300 KB, and for each pattern with hits
in one block a row of words per counter plane and a row of hits, in pattern order (``counters``):
bit i of word 8 v + w of a row is window 64 (4 w + v) + i of the block.

Hits are put in order by a counting sort of each word: 64 bins, and only the patterns with hits in
the word, listed without a branch.
"""

import numpy as np
from numpy.typing import NDArray

from streamer.batch.hamming.problem import START_SHIFT, Oriented
from trie.codes import GAP
from trie.cpu.intrinsics import popcount, trailing_zeros
from trie.cpu.jit import njit
from trie.cpu.vectors import (
    WORDS,
    aligned_words,
    common,
    difference,
    differs,
    either,
    exclusive_or,
    load,
    majority,
    occupied,
    shifted_pair,
    spread,
    store,
    without,
)

VECTORS = 4  # vectors of a block
ROW = VECTORS * WORDS  # words per block, one bit per window
BLOCK = 64 * ROW


@njit(cache=True, nogil=True, forceinline=True)
def _hit(counters, at, bit, planes, begin, oriented, start):
    """Return the hit word of one bit of the hits at ``at`` in ``counters``."""
    distance = np.uint64(0)
    for plane in range(planes):
        counter = counters[at - np.uint64(ROW) * (planes - plane)]
        distance |= ((counter >> bit) & np.uint64(1)) << plane
    return (start << np.uint64(START_SHIFT)) | oriented | (distance - begin)


@njit(cache=True, nogil=True)
def emit(counters, ids, count, some, planes, begin, start, words, written):
    """Append the hits of a block to words[:written]; return the new number.

    counters: uint64[count * (planes + 1) * ROW]. ids: uint64[count], shifted as in a hit word.
    some: uint64[ROW], the hits of any pattern. start: where the block starts, as counted in hit
    words. If they do not fit, writes nothing and returns -(their number).
    """
    planes = np.uint64(planes)
    last = planes * np.uint64(ROW)
    size = last + np.uint64(ROW)
    total = 0
    for p in range(np.uint64(count)):
        for word in range(np.uint64(ROW)):
            total += np.int64(popcount(counters[p * size + last + word]))
    if written + total > words.size:
        return -total
    to = np.uint64(written)
    listed = np.empty(count + 1, dtype=np.uint64)
    bins = np.empty(64, dtype=np.uint64)
    for place in range(np.uint64(ROW)):
        word = (place % np.uint64(VECTORS)) * np.uint64(WORDS) + place // np.uint64(VECTORS)
        if not some[word]:
            continue
        own = np.uint64(0)
        for p in range(np.uint64(count)):
            listed[own] = p
            own += np.uint64(counters[p * size + last + word] != 0)
        bins[:] = 0
        for i in range(own):
            hits = counters[listed[i] * size + last + word]
            while hits:
                bins[trailing_zeros(hits)] += np.uint64(1)
                hits &= hits - np.uint64(1)
        hits = some[word]
        while hits:
            bit = trailing_zeros(hits)
            hits &= hits - np.uint64(1)
            bins[bit], to = to, to + bins[bit]
        window = np.uint64(start) + np.uint64(64) * place
        for i in range(own):
            p = listed[i]
            at = p * size + last + word
            hits = counters[at]
            while hits:
                bit = trailing_zeros(hits)
                hits &= hits - np.uint64(1)
                words[bins[bit]] = _hit(counters, at, bit, planes, begin, ids[p], window + bit)
                bins[bit] += np.uint64(1)
    return written + total


SEGMENT = 64 * VECTORS  # windows of a block at the same place in its vectors
STEP = 4  # rows added at a time

_NEVER, _ALWAYS = 0, 1
"""The rows without mismatches (after a pattern's end) and with only mismatches (a gap code)."""


def prepare(patterns: Oriented) -> tuple[NDArray[np.int64], NDArray[np.uint32], int]:
    """Return the rows of the table, which of them each pattern adds, and the length.

    used: int64[rows, 2], base and symbol of each row of the table from row 2 on. rows:
    uint32[patterns, length rounded up to STEP], the start of the row for each symbol of a pattern.
    """
    length = patterns.length
    keys = patterns.codes.astype(np.int64) * length + np.arange(length)
    present = np.unique(keys[patterns.codes < GAP])
    rows = np.full((len(patterns), -(-length // STEP) * STEP), _NEVER, dtype=np.uint32)
    numbers = (np.searchsorted(present, keys) + 2).astype(np.uint32)
    rows[:, :length] = np.where(patterns.codes < GAP, numbers, np.uint32(_ALWAYS))
    used = np.stack([present // length, present % length], axis=1)
    return used, np.ascontiguousarray(rows * np.uint32(ROW)), length


def most_windows(patterns: Oriented, cells: int) -> int:
    """Implement ``most_windows`` of ``engines.ON_CPU``: a cell takes a picosecond."""
    return max(BLOCK, (cells << 10) // patterns.codes.size)


def scan(
    codes: NDArray[np.uint8],
    first: int,
    stop: int,
    origin: int,
    ids: NDArray[np.uint64],
    k: int,
    words: NDArray[np.uint64],
    used: NDArray[np.int64],
    rows: NDArray[np.uint32],
    length: int,
) -> tuple[int, int, int]:
    """Implement ``scan`` of ``engines.ON_CPU``."""
    planes = max(3, k.bit_length())  # 2^planes exceeds k
    height = VECTORS + (length - 1) // 64 + 1
    return _scan(
        codes, first, stop, origin, used, rows, ids, planes, (1 << planes) - 1 - k,
        aligned_words(GAP * height * WORDS),
        aligned_words((2 + len(used)) * ROW),
        aligned_words(ROW),
        aligned_words(ROW),
        aligned_words(len(ids) * (planes + 1) * ROW),
        aligned_words(len(ids)),
        words,
    )  # fmt: skip


@njit(cache=True, nogil=True)
def _slice(codes, at, planes, height):
    """Make the planes of the block at ``at`` and of the ``height`` - VECTORS vectors after it."""
    total = codes.size
    for v in range(height):
        for w in range(WORDS):
            position = at + w * SEGMENT + v * 64
            place = v * WORDS + w
            if position + 64 <= total:
                for base in range(GAP):
                    planes[base * height * WORDS + place] = differs(codes, position, base)
            else:
                for base in range(GAP):
                    word = ~np.uint64(0)
                    for i in range(max(total - position, 0)):
                        if codes[position + i] == base:
                            word ^= np.uint64(1) << np.uint64(i)
                    planes[base * height * WORDS + place] = word


@njit(cache=True, nogil=True)
def _fill_table(planes, height, used, table):
    """Fill every row of the table that a pattern uses."""
    for u in range(used.shape[0]):
        base = used[u, 0]
        symbol = used[u, 1]
        plane = (base * height + (symbol >> 6)) * WORDS
        low = load(planes, plane)
        for v in range(VECTORS):
            high = load(planes, plane + (v + 1) * WORDS)
            store(table, (u + 2) * ROW + v * WORDS, shifted_pair(low, high, symbol & 63))
            low = high


@njit(cache=True, nogil=True)
def _mark_valid(count, valid):
    """Set a bit for each of the first ``count`` windows of a block."""
    for v in range(VECTORS):
        for w in range(WORDS):
            inside = min(max(count - w * SEGMENT - v * 64, 0), 64)
            word = ~np.uint64(0)
            if inside < 64:
                word = (np.uint64(1) << np.uint64(inside)) - np.uint64(1)
            valid[v * WORDS + w] = word


@njit(cache=True, nogil=True, forceinline=True)
def _add(table, a, b, c, d, ones, twos):
    """Add the rows of four symbols; return the new ones and twos, and the carry into the fours."""
    first = load(table, a)
    second = load(table, b)
    two = majority(ones, first, second)
    ones = exclusive_or(ones, first, second)
    first = load(table, c)
    second = load(table, d)
    other = majority(ones, first, second)
    ones = exclusive_or(ones, first, second)
    return ones, exclusive_or(twos, two, other), majority(twos, two, other)


@njit(cache=True, nogil=True, forceinline=True)
def _plane(begin, plane):
    """Return a plane of the counter's initial value."""
    return spread(np.uint64(0) - ((begin >> np.uint64(plane)) & np.uint64(1)))


@njit(cache=True, nogil=True, forceinline=True)
def _count(table, rows, p, at, begin):
    """Count pattern p in two vectors from word ``at``; return three planes and the overflow."""
    second = np.uint64(WORDS)
    ones = other_ones = _plane(begin, 0)
    twos = other_twos = _plane(begin, 1)
    fours = other_fours = _plane(begin, 2)
    over = other_over = spread(np.uint64(0))
    j = np.uint64(0)
    while j < np.uint64(rows.shape[1]):
        a = rows[p, j] + at
        b = rows[p, j + np.uint64(1)] + at
        c = rows[p, j + np.uint64(2)] + at
        d = rows[p, j + np.uint64(3)] + at
        ones, twos, four = _add(table, a, b, c, d, ones, twos)
        over = either(over, common(fours, four))
        fours = difference(fours, four)
        other_ones, other_twos, four = _add(
            table, a + second, b + second, c + second, d + second, other_ones, other_twos
        )
        other_over = either(other_over, common(other_fours, four))
        other_fours = difference(other_fours, four)
        j += np.uint64(STEP)
    return ones, twos, fours, over, other_ones, other_twos, other_fours, other_over


@njit(cache=True, nogil=True)
def _count_high(table, rows, p, at, begin, planes, counters, to):
    """Count one vector with more planes, into ``counters`` from ``to``; return the overflow."""
    for plane in range(planes):
        store(counters, to + plane * ROW, _plane(begin, plane))
    over = spread(np.uint64(0))
    j = np.uint64(0)
    while j < np.uint64(rows.shape[1]):
        ones, twos, carry = _add(
            table,
            rows[p, j] + at,
            rows[p, j + np.uint64(1)] + at,
            rows[p, j + np.uint64(2)] + at,
            rows[p, j + np.uint64(3)] + at,
            load(counters, to),
            load(counters, to + ROW),
        )
        store(counters, to, ones)
        store(counters, to + ROW, twos)
        for plane in range(2, planes):
            value = load(counters, to + plane * ROW)
            store(counters, to + plane * ROW, difference(value, carry))
            carry = common(value, carry)
        over = either(over, carry)
        j += np.uint64(STEP)
    return over


@njit(cache=True, nogil=True)
def _scan(
    codes, first, stop, origin, used, rows, ids, planes, begin, slices, table, valid, some,
    counters, hits, words,
):  # fmt: skip
    height = slices.size // (GAP * WORDS)
    begin = np.uint64(begin)
    table[_ALWAYS * ROW : (_ALWAYS + 1) * ROW] = ~np.uint64(0)
    size = (planes + 1) * ROW
    written = 0
    _mark_valid(BLOCK, valid)
    while first < stop:
        _slice(codes, first, slices, height)
        _fill_table(slices, height, used, table)
        if first + BLOCK > stop:
            _mark_valid(stop - first, valid)
        count = 0
        for v in range(VECTORS):
            store(some, v * WORDS, spread(np.uint64(0)))
        for p in range(np.uint64(rows.shape[0])):
            hit = np.uint64(0)
            for pair in range(VECTORS // 2):
                at = 2 * pair * WORDS
                to = count * size + at
                if planes == 3:
                    ones, twos, fours, over, ones2, twos2, fours2, over2 = _count(
                        table, rows, p, np.uint64(at), begin
                    )
                    here = without(load(valid, at), over)
                    here2 = without(load(valid, at + WORDS), over2)
                    store(counters, to + 3 * ROW, here)
                    store(counters, to + 3 * ROW + WORDS, here2)
                    found_here = occupied(either(here, here2))
                    if found_here:
                        store(counters, to, ones)
                        store(counters, to + ROW, twos)
                        store(counters, to + 2 * ROW, fours)
                        store(counters, to + WORDS, ones2)
                        store(counters, to + ROW + WORDS, twos2)
                        store(counters, to + 2 * ROW + WORDS, fours2)
                        store(some, at, either(load(some, at), here))
                        store(some, at + WORDS, either(load(some, at + WORDS), here2))
                        hit |= found_here
                else:
                    for v in range(2):
                        place = at + v * WORDS
                        over = _count_high(
                            table, rows, p, np.uint64(place), begin, planes, counters,
                            to + v * WORDS,
                        )  # fmt: skip
                        here = without(load(valid, place), over)
                        store(counters, to + v * WORDS + planes * ROW, here)
                        store(some, place, either(load(some, place), here))
                        hit |= occupied(here)
            if hit:
                hits[count] = ids[p]
                count += 1
        if count:
            stops = emit(counters, hits, count, some, planes, begin, first - origin, words, written)
            if stops < 0:
                return first, written, -stops
            written = stops
        first += BLOCK
    return stop, written, 0
