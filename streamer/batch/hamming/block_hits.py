"""Convert the hits of one block, found pattern by pattern, to hit words in row order.

For each pattern with hits, in pattern order, ``counters`` holds one row of words per counter plane
and a row of hits. Bit i of word 8 v + w of a row is window 64 (4 w + v) + i of the block. The
planes are the binary count of a window's mismatches, which started at ``begin``.

Typically a word has a hit or two, at places that no branch predictor can guess. With few patterns,
the words with hits are listed without a branch, and a hit's place in the output is computed: the
hits of earlier words, plus the set bits below it in its word, over all patterns. Hits are taken one
by one only where two patterns match at one position. With many patterns, a counting sort by
position takes over: 2,048 bins, two passes of about five operations per hit.
"""

from __future__ import annotations

import numpy as np

from streamer.batch.hamming.packed_hits import START_SHIFT
from trie.cpu.intrinsics import popcount, trailing_zeros
from trie.cpu.jit import njit
from trie.cpu.vectors import WORDS

FEW = 24  # up to this many patterns with hits in a block, their words are processed together
DENSE = 10  # with at least one match in this many windows, branching on a window does not pay

VECTORS = 4  # vectors of a block
ROW = VECTORS * WORDS  # words per block, one bit per window
BLOCK = 64 * ROW
_WORD_BITS = np.uint64(8)


@njit(cache=True, nogil=True, forceinline=True)
def _word_at(place):
    """Return the index in a row of the word that is number ``place`` by position."""
    return (place % np.uint64(VECTORS)) * np.uint64(WORDS) + place // np.uint64(VECTORS)


@njit(cache=True, nogil=True, forceinline=True)
def _first_of(word):
    """Return the first window, in the block, of a word of a row."""
    place = (word % np.uint64(WORDS)) * np.uint64(VECTORS) + word // np.uint64(WORDS)
    return np.uint64(64) * place


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
    patterns = np.uint64(count)
    total = 0
    for p in range(patterns):
        at = (p * (planes + np.uint64(1)) + planes) * np.uint64(ROW)
        for w in range(np.uint64(ROW)):
            total += np.int64(popcount(counters[at + w]))
    if written + total >= words.size:  # the branchless code writes one more
        return -(total + 1)
    if patterns <= FEW and total * DENSE > patterns * np.uint64(BLOCK):
        _every_window(counters, ids, patterns, planes, begin, np.uint64(start), words, written)
    elif patterns <= FEW:
        _side_by_side(
            counters, ids, patterns, some, planes, begin, np.uint64(start), words,
            np.uint64(written),
        )  # fmt: skip
    else:
        _counting_sort(
            counters, ids, patterns, planes, begin, np.uint64(start), words, np.uint64(written)
        )
    return written + total


@njit(cache=True, nogil=True)
def _side_by_side(counters, ids, patterns, some, planes, begin, start, words, written):
    size = (planes + np.uint64(1)) * np.uint64(ROW)
    listed = np.empty(FEW * ROW + 1, dtype=np.uint64)
    before = np.empty(ROW + 1, dtype=np.uint64)
    count = np.uint64(0)
    hits = written
    for place in range(np.uint64(ROW)):
        word = _word_at(place)
        before[word] = hits
        at = planes * np.uint64(ROW) + word
        for p in range(patterns):
            listed[count] = (p << _WORD_BITS) | word
            count += np.uint64(counters[at] != 0)
            hits += popcount(counters[at])
            at += size
    for i in range(count):
        p = listed[i] >> _WORD_BITS
        word = listed[i] & ((np.uint64(1) << _WORD_BITS) - np.uint64(1))
        at = p * size + planes * np.uint64(ROW) + word
        left = counters[at]
        first = start + _first_of(word)
        while left:
            bit = trailing_zeros(left)
            left &= left - np.uint64(1)
            below = (np.uint64(1) << bit) - np.uint64(1)
            to = before[word] + popcount(some[word] & below)
            words[to] = _hit(counters, at, bit, planes, begin, ids[p], first + bit)
    for place in range(np.uint64(ROW)):
        word = _word_at(place)
        stop = hits
        if place + np.uint64(1) < np.uint64(ROW):
            stop = before[_word_at(place + np.uint64(1))]
        if stop - before[word] != popcount(some[word]):
            _one_by_one(
                counters, ids, patterns, planes, begin, start, word, some[word], words, before[word]
            )


@njit(cache=True, nogil=True)
def _one_by_one(counters, ids, patterns, planes, begin, start, word, some, words, to):
    """Write the hits of one word in which several patterns match at one position."""
    size = (planes + np.uint64(1)) * np.uint64(ROW)
    while some:
        bit = trailing_zeros(some)
        some &= some - np.uint64(1)
        at = planes * np.uint64(ROW) + word
        window = start + _first_of(word) + bit
        for p in range(patterns):
            if (counters[at] >> bit) & np.uint64(1):
                words[to] = _hit(counters, at, bit, planes, begin, ids[p], window)
                to += np.uint64(1)
            at += size


@njit(cache=True, nogil=True)
def _every_window(counters, ids, patterns, planes, begin, start, words, to):
    """Write every window and pattern; non-hits are overwritten by the next one."""
    size = (planes + np.uint64(1)) * np.uint64(ROW)
    for place in range(np.uint64(ROW)):
        word = planes * np.uint64(ROW) + _word_at(place)
        for bit in range(np.uint64(64)):
            window = start + np.uint64(64) * place + bit
            at = word
            for p in range(patterns):
                words[to] = _hit(counters, at, bit, planes, begin, ids[p], window)
                to += np.int64((counters[at] >> bit) & np.uint64(1))
                at += size


@njit(cache=True, nogil=True)
def _counting_sort(counters, ids, patterns, planes, begin, start, words, written):
    size = (planes + np.uint64(1)) * np.uint64(ROW)
    bins = np.zeros(BLOCK + 1, dtype=np.uint64)
    for p in range(patterns):
        for word in range(np.uint64(ROW)):
            left = counters[p * size + planes * np.uint64(ROW) + word]
            first = _first_of(word)
            while left:
                bins[first + trailing_zeros(left) + np.uint64(1)] += np.uint64(1)
                left &= left - np.uint64(1)
    bins[0] = written
    for i in range(np.uint64(BLOCK)):
        bins[i + np.uint64(1)] += bins[i]
    for p in range(patterns):
        for word in range(np.uint64(ROW)):
            at = p * size + planes * np.uint64(ROW) + word
            left = counters[at]
            while left:
                bit = trailing_zeros(left)
                left &= left - np.uint64(1)
                window = _first_of(word) + bit
                to = bins[window]
                bins[window] = to + np.uint64(1)
                words[to] = _hit(counters, at, bit, planes, begin, ids[p], start + window)
