"""Where the minimizers of a text occur: places in buckets, and nothing else of them.

    key           a 64-bit hash of an m-mer, or of a k-mer
    offsets       uint32[buckets + 1]: where each bucket begins; its highest bit: see ``full``
    places        uint32: where the m-mers or k-mers of a bucket begin in the text, ascending
    prints        uint8, a fingerprint for each: 8 more bits of the key
    full          uint64, two bits a bucket: whether it is full on the first and the second level

The highest bits of a key choose its bucket, which holds about PER_BUCKET places. A place is one of
an m-mer or of a k-mer: only the text tells.

A window is found by its minimizer. If more than MOST minimizers share a bucket, it is *full* and
has no places of them: their windows are found by their minimizers of the second level, longer
m-mers, in which the copies of a repeat differ. If that bucket is full, too, they are found by their
k-mers, of which only the first occurrence has a place: a satellite has few.

Counting minimizers tells which buckets are full, first on one level and then on the other.
Counting, listing k-mers and filling are passes over the text, in parallel by ranges of it; sorting
each bucket makes the result the same for any number of threads.

About 1 + 1 / PER_BUCKET * 4 + 4 bytes a place, and 2 / (w + 1) places per base.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numpy.typing import NDArray

from trie.cpu import llvm
from trie.cpu.intrinsics import prefetch_far, prefetch_to_write, trailing_zeros
from trie.cpu.jit import inner, njit
from trie.cpu.llvm import I16, I32, INDEX, instruction
from trie.cpu.threads import run_ranges
from trie.cpu.vectors import aligned_words
from trie.index.buckets import FREE, code_of
from trie.index.kmer_index import KmerIndex
from trie.index.mers import (
    BITS,
    BLOCK,
    MARGIN,
    MOST_MERS,
    Mers,
    filter_place,
    mer_at,
    number_at,
    put_orders,
)
from trie.index.reference_text import PAD, ReferenceText, TextShape, fill_from_text, first_gap

MOST: Final = 16
"""Most minimizers of one level in a bucket."""

PER_BUCKET: Final = 4
LEAST_BUCKETS: Final = 64
FULL: Final = np.uint32(1 << 31)
MOST_PLACES: Final = (1 << 31) - 1
LEAST_PLACES: Final = 8
"""Places, of which some may be in no bucket: fingerprints are read eight at a time."""

_ORDERS: Final = BLOCK + MARGIN  # of a block
_STEP: Final = BLOCK - MOST_MERS  # places whose windows all lie in a block
_GRAIN: Final = 1 << 18
LISTED: Final = 1 << 20
"""Symbols, for each thread, whose k-mers are listed together."""
MOST_AT_ONCE: Final = 1 << 24
"""Symbols, or buckets, between two reports of what is done."""

KEY_FACTORS: Final = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)
"""Of ``key_of``."""

_SIXTEEN = ir.VectorType(I32, 16)

FIRST, SECOND, KMERS = range(3)
"""The levels: how a window is found."""

_COUNT_FIRST, _COUNT_SECOND, _FILL, _LIST_KMERS = range(4)
"""What a pass over the text is for."""


class IndexShape(NamedTuple):
    """The parameters of an index, as kernels take them. mers, longer: of both levels."""

    k: int
    mers: Mers
    longer: Mers
    text: TextShape


class Buckets(NamedTuple):
    """The arrays, as above."""

    offsets: NDArray[np.uint32]
    places: NDArray[np.uint32]
    prints: NDArray[np.uint8]
    full: NDArray[np.uint64]


class TooManyPlacesError(ValueError):
    """A text has more minimizers than places can be stored."""


@inner
def key_of(number):
    """The key of an m-mer or k-mer, by its number."""
    key = (number + np.uint64(1)) * KEY_FACTORS[0]
    key = (key ^ key >> np.uint64(32)) * KEY_FACTORS[1]
    return key ^ key >> np.uint64(29)


@inner
def bucket_of(key, offsets):
    """The bucket of a key."""
    return ((key >> np.uint64(32)) * np.uint64(offsets.size - 1)) >> np.uint64(32)


@inner
def print_of(key):
    """The fingerprint of a key."""
    return np.uint8(key)


@inner
def is_full(full, bucket, level):
    """Whether a bucket is full on a level."""
    bit = 2 * np.int64(bucket) + level
    return full[bit >> 6] >> np.uint64(bit & 63) & np.uint64(1) != 0


@instruction(types.uint32, None, INDEX, types.uint32)
def _add_next(builder: Any, array: Any, index: Any, number: Any) -> Any:
    """``array[index] += number`` in a uint32 array that several threads add to; the old value."""
    return builder.atomic_rmw("add", llvm.element(builder, array, index), number, "monotonic")


@instruction(types.void, None, INDEX, INDEX)
def _lesser_ahead(builder: Any, words: Any, at: Any, ahead: Any) -> None:
    """words[at : at + 16] = the lesser of each and the word ``ahead`` further."""
    one = llvm.load(builder, words, at, _SIXTEEN)
    other = llvm.load(builder, words, builder.add(at, ahead), _SIXTEEN)
    less = builder.icmp_unsigned("<", one, other)
    llvm.store(builder, builder.select(less, one, other), words, at)


@instruction(types.uint16, None, INDEX, None, INDEX)
def _equal_words(builder: Any, one: Any, at: Any, other: Any, to: Any) -> Any:
    """16 bits: bit i is set where one[at + i] is other[to + i]."""
    found = llvm.load(builder, one, at, _SIXTEEN), llvm.load(builder, other, to, _SIXTEEN)
    return builder.bitcast(builder.icmp_unsigned("==", *found), I16)


@inner
def _least_ahead(words, count):
    """Each word becomes the least of ``count`` words from it on: by doubling, at most 5 passes."""
    span = 1
    while 2 * span <= count:
        for at in range(0, _ORDERS, 16):
            _lesser_ahead(words, at, span)
        span *= 2
    if span < count:
        for at in range(0, _ORDERS, 16):
            _lesser_ahead(words, at, count - span)


@inner
def _open_windows(blocks, gaps, shape, k, origin, inside):
    """Note which windows of a block of the text hold no gap code."""
    for at in range(inside.size):
        inside[at] = True
    i = first_gap(blocks, shape, origin)
    while i < gaps.size and np.int64(gaps[i]) < origin + inside.size + k:
        for at in range(
            max(np.int64(gaps[i]) - k + 1 - origin, 0),
            min(np.int64(gaps[i + 1]) - origin, inside.size),
        ):
            inside[at] = False
        i += 2


@inner
def _choose(sixteens, mers, inside, orders, least, others, chosen, first, stop):
    """Write the m-mers of a block, from [first, stop), that are minimizers; their number.

    inside: the windows that count. least: receives the order of each window's minimizer, 0 for
    other windows. An m-mer is a minimizer if it is the greatest of the least m-mers of the windows
    that hold it.
    """
    for at in range(0, _ORDERS, 16):
        put_orders(sixteens, at, mers, orders, at)
    for i in range(orders.size):
        orders[i] += np.uint32(1)
        least[i] = orders[i]
    _least_ahead(least, mers.width)
    for i in range(inside.size):
        if not inside[i]:
            least[i] = 0
    # the greatest are the least of the complements
    for i in range(others.size):
        others[i] = ~least[i]
    _least_ahead(others, mers.width)
    for i in range(others.size):
        others[i] = ~others[i]
    count = 0
    for begin in range(first, stop, 16):
        bits = np.uint64(_equal_words(orders, begin, others, begin - mers.width + 1))
        while bits != 0:
            at = begin + np.int64(trailing_zeros(bits))
            bits &= bits - np.uint64(1)
            if at < stop:
                chosen[count] = at
                count += 1
    return count


@inner
def _divide(mers, offsets, full, level, orders, least, chosen, keys, count, inside, first, stop):
    """Keep the minimizers in [first, stop) of buckets that are not full, and the other windows.

    Returns the number of minimizers, and whether windows are left.
    """
    kept = 0
    left = False
    for i in range(inside.size):
        inside[i] = False
    for i in range(count):
        prefetch_far(full, bucket_of(keys[i], offsets) >> np.uint64(5))
    for i in range(count):
        at = chosen[i]
        if is_full(full, bucket_of(keys[i], offsets), level):
            for window in range(max(at - mers.width + 1, 0), at + 1):
                if least[window] == orders[at]:
                    inside[window] = True
                    left = True
        elif first <= at < stop:
            chosen[kept] = at
            keys[kept] = keys[i]
            kept += 1
    return kept, left


@inner
def _keys(sixteens, length, canonical, chosen, keys, count):
    for i in range(count):
        keys[i] = key_of(number_at(sixteens, chosen[i], length, canonical)[0])


@inner
def _put(offsets, places, prints, chosen, keys, count, slots, origin, fills):
    """Count minimizers by bucket, or write their places."""
    for i in range(count):
        prefetch_to_write(offsets, bucket_of(keys[i], offsets))
    for i in range(count):
        slot = np.int64(_add_next(offsets, bucket_of(keys[i], offsets), np.uint32(1)))
        if fills:
            prefetch_to_write(places, slot)
            prefetch_to_write(prints, slot)
            slots[i] = slot
    if fills:
        for i in range(count):
            places[slots[i]] = origin + chosen[i]
            prints[slots[i]] = print_of(keys[i])


@njit(cache=True, nogil=True)
def _scan(
    text, blocks, gaps, shape, k, mers, longer, offsets, places, prints, full, codes, kmer_places,
    start, stop, what,
):  # fmt: skip
    """A pass over the windows and m-mers that begin in [start, stop), 4 | start.

    mers, longer: of both levels. _COUNT_FIRST, _COUNT_SECOND: count the minimizers of one level in
    ``offsets`` by bucket. _FILL: write places and fingerprints, moving ``offsets``. _LIST_KMERS:
    write the numbers of the windows that are found by neither to ``codes``, and their places.
    Returns how many these are.
    """
    sixteens = np.empty(BLOCK + 2 * MARGIN, dtype=np.uint32)
    orders = np.empty(_ORDERS + MARGIN, dtype=np.uint32)
    least = np.empty(_ORDERS + MARGIN, dtype=np.uint32)
    others = np.empty(_ORDERS + MARGIN, dtype=np.uint32)
    inside = np.empty(_ORDERS, dtype=np.bool_)
    chosen = np.empty(BLOCK + MARGIN, dtype=np.int64)
    keys = np.empty(BLOCK + MARGIN, dtype=np.uint64)
    canonical = shape.both > shape.size
    kmers = 0
    for begin in range(start, stop, _STEP):
        origin = begin - MOST_MERS
        end = MOST_MERS + min(_STEP, stop - begin)
        fill_from_text(text, origin, sixteens.size, sixteens)
        _open_windows(blocks, gaps, shape, k, origin, inside)
        left = True
        if mers.width:
            # which windows of earlier m-mers are left is needed to know the longer m-mers
            first = MOST_MERS if what == _COUNT_FIRST else MOST_MERS - longer.width
            last = end if what == _COUNT_FIRST else end + mers.width - 1
            count = _choose(sixteens, mers, inside, orders, least, others, chosen, first, last)
            _keys(sixteens, mers.length, canonical, chosen, keys, count)
            if what != _COUNT_FIRST:
                count, left = _divide(
                    mers, offsets, full, FIRST, orders, least, chosen, keys, count, inside,
                    MOST_MERS, end,
                )  # fmt: skip
            if what != _COUNT_SECOND and what != _LIST_KMERS:
                _put(offsets, places, prints, chosen, keys, count, others, origin, what == _FILL)
        if not left or what == _COUNT_FIRST:
            continue
        if longer.width:
            first = MOST_MERS if what == _COUNT_SECOND else MOST_MERS - longer.width
            last = end if what == _COUNT_SECOND else end + longer.width - 1
            count = _choose(sixteens, longer, inside, orders, least, others, chosen, first, last)
            _keys(sixteens, longer.length, canonical, chosen, keys, count)
            if what != _COUNT_SECOND:
                count, left = _divide(
                    longer, offsets, full, SECOND, orders, least, chosen, keys, count, inside,
                    MOST_MERS, end,
                )  # fmt: skip
            if what != _LIST_KMERS:
                _put(offsets, places, prints, chosen, keys, count, others, origin, what == _FILL)
        for at in range(MOST_MERS, end):
            if inside[at] and what == _LIST_KMERS:
                codes[kmers] = number_at(sixteens, at, k, canonical)[0]
                kmer_places[kmers] = origin + at
                kmers += 1
    return kmers


@njit(cache=True, nogil=True)
def _divide_counts(counts, offsets, full, level, first, stop):
    """Move counts of up to MOST to ``offsets``; other buckets are full."""
    for bucket in range(first, stop):
        if counts[bucket] > MOST:
            bit = 2 * bucket + level
            full[bit >> 6] |= np.uint64(1) << np.uint64(bit & 63)
        else:
            offsets[bucket] += counts[bucket]
        counts[bucket] = 0


@njit(cache=True, nogil=True)
def _put_kmers(table, values, offsets, places, prints, fills, first, stop):
    """Count k-mers, as hash tables have them, in ``offsets``, or write their places."""
    keys = np.empty(BLOCK, dtype=np.uint64)
    chosen, slots = np.empty(BLOCK, dtype=np.int64), np.empty(BLOCK, dtype=np.uint32)
    for begin in range(first, stop, BLOCK):
        count = min(BLOCK, stop - begin)
        for i in range(count):
            keys[i] = key_of(code_of(table[begin + i]))
            chosen[i] = values[begin + i]
        _put(offsets, places, prints, chosen, keys, count, slots, 0, fills)


@njit(cache=True, nogil=True)
def join_rows(rows):
    """Join ascending rows of repeats that continue the row before; rows, and their steps + 1."""
    count = 0
    for i in range(len(rows)):
        if count:
            size = rows[i, 0] - rows[count - 1, 0]
            step = rows[count - 1, 3]
            if (
                rows[count - 1, 1] == rows[i, 0]
                and rows[count - 1, 2] + step * size == rows[i, 2]
                and (rows[i, 3] == step or rows[i, 1] == rows[i, 0] + 1)
            ):
                rows[count - 1, 1] = rows[i, 1]
                continue
        rows[count] = rows[i]
        count += 1
    rows[:count, 3] += 1
    return rows[:count].astype(np.uint32)


@njit(cache=True, nogil=True)
def _to_starts(offsets):
    """Turn counts into the starts of buckets; the sum."""
    total = np.int64(0)
    for bucket in range(offsets.size):
        count = np.int64(offsets[bucket])
        offsets[bucket] = total
        total += count
    return total


@njit(cache=True, nogil=True)
def _shift(offsets):
    """Make the ends of buckets, which are full now, starts again."""
    for bucket in range(offsets.size - 1, 0, -1):
        offsets[bucket] = offsets[bucket - 1]
    offsets[0] = 0


@njit(cache=True, nogil=True)
def _sort(offsets, places, prints, first, stop):
    """Sort each of the buckets [first, stop)."""
    for bucket in range(first, stop):
        begin, end = np.int64(offsets[bucket]), np.int64(offsets[bucket + 1])
        for i in range(begin + 1, end):
            place, mark = places[i], prints[i]
            at = i
            while at > begin and places[at - 1] > place:
                places[at] = places[at - 1]
                prints[at] = prints[at - 1]
                at -= 1
            places[at] = place
            prints[at] = mark


@njit(cache=True, nogil=True)
def _note_full(offsets, full):
    for bucket in range(offsets.size - 1):
        if is_full(full, bucket, FIRST) or is_full(full, bucket, SECOND):
            offsets[bucket] |= FULL


_NO_WORDS = np.empty(0, dtype=np.uint64)
_NO_PLACES = np.empty(0, dtype=np.uint32)
_NO_PRINTS = np.empty(0, dtype=np.uint8)


def find_places(
    text: ReferenceText,
    shape: IndexShape,
    threads: int,
    on_work: Callable[[float], None] = lambda done: None,
) -> tuple[Buckets, list[NDArray[np.uint32]]]:
    """The buckets of a text, and the repeats of ``list_kmers``.

    on_work: gets the share of the work that is done.

    Raises TooManyPlacesError if they cannot be stored.
    """
    k, mers, longer = shape.k, shape.mers, shape.longer
    known = text.packed, text.blocks, text.gaps, shape.text, k, mers, longer
    stop = text.size - PAD
    expected = 2 * text.size // (mers.width + 1)
    offsets = np.zeros(max(expected // PER_BUCKET, LEAST_BUCKETS) + 1, np.uint32)
    counts, full = np.zeros_like(offsets), np.zeros(offsets.size // 32 + 1, np.uint64)
    passes = 1 + bool(mers.width) + bool(longer.width)
    done = 0

    def scan(what: int, *arrays: Any) -> None:
        def part(begin: int, end: int) -> None:
            nonlocal done
            _scan(*known, *arrays, full, _NO_WORDS, _NO_PLACES, begin, end, what)
            done += end - begin
            on_work(done / (passes * text.size))

        run_ranges(part, PAD, stop, threads, grain=_GRAIN, align=4, most=MOST_AT_ONCE)

    for level, what, ones in (FIRST, _COUNT_FIRST, mers), (SECOND, _COUNT_SECOND, longer):
        if ones.width:
            scan(what, counts, _NO_PLACES, _NO_PRINTS)
            divide = partial(_divide_counts, counts, offsets, full, level)
            run_ranges(divide, 0, counts.size - 1, threads, grain=_GRAIN, align=32)
    del counts
    kmers, repeats = list_kmers(text, shape, offsets, full, threads)
    table, values, _ = kmers.arrays()
    used = table != FREE
    table, values = table[used], values[used]
    del kmers, used
    put = partial(_put_kmers, table, values, offsets)
    run_ranges(partial(put, _NO_PLACES, _NO_PRINTS, False), 0, table.size, threads, grain=_GRAIN)
    total = int(_to_starts(offsets))
    if total > MOST_PLACES:
        raise TooManyPlacesError(f"{total:,} minimizers: at most {MOST_PLACES:,} can be stored")
    stored = max(total, LEAST_PLACES)
    places, prints = np.zeros(stored, np.uint32), np.zeros(stored, np.uint8)
    scan(_FILL, offsets, places, prints)
    run_ranges(partial(put, places, prints, True), 0, table.size, threads, grain=_GRAIN)
    del table, values, put
    _shift(offsets)
    run_ranges(partial(_sort, offsets, places, prints), 0, offsets.size - 1, threads, grain=_GRAIN)
    _note_full(offsets, full)
    return Buckets(offsets, places, prints, full), repeats


def list_kmers(
    text: ReferenceText,
    shape: IndexShape,
    offsets: NDArray[np.uint32],
    full: NDArray[np.uint64],
    threads: int,
) -> tuple[KmerIndex, list[NDArray[np.uint32]]]:
    """The k-mers that no minimizer finds, with their first windows, and the repeats of these.

    The latter are rows as in ``trie.index.repeats``, their steps greater by one, ascending.
    """
    known = text.packed, text.blocks, text.gaps, shape.text, shape.k, shape.mers, shape.longer
    kmers, repeats = KmerIndex(shape.k, with_values=True), list[NDArray[np.uint32]]()

    def listed(begin: int, end: int) -> tuple[NDArray[np.uint64], NDArray[np.uint32]]:
        numbers, windows = np.empty(end - begin, np.uint64), np.empty(end - begin, np.uint32)
        arrays = offsets, _NO_PLACES, _NO_PRINTS, full, numbers, windows
        count = _scan(*known, *arrays, begin, end, _LIST_KMERS)
        return numbers[:count], windows[:count]

    def repeated(low: int, high: int) -> NDArray[np.uint32]:
        again = low + np.flatnonzero(firsts[low:high] != windows[low:high])
        later, first = windows[again], firsts[again]
        steps = 2 * text.equal_at(later, first, shape.k) - 1
        return join_rows(np.stack((later, later + 1, first, steps), axis=1, dtype=np.int64))

    stop = text.size - PAD if full.any() or not shape.mers.width else PAD
    for begin in range(PAD, stop, LISTED * threads):
        end = min(begin + LISTED * threads, stop)
        # some parts of a text have far more of them than others
        found = run_ranges(listed, begin, end, threads, align=4, most=LISTED >> 2)
        numbers, windows = (np.concatenate(column) for column in zip(*found, strict=True))
        del found
        firsts = windows.copy()
        kmers.add(numbers, firsts, threads)
        repeats += run_ranges(repeated, 0, windows.size, threads, grain=_GRAIN >> 4)
    return kmers, repeats


def mer_filter(text: ReferenceText, mers: Mers, shape: TextShape) -> NDArray[np.uint64]:
    """The filter of the m-mers of a text; m < 16."""
    words = aligned_words(1 + text.size * BITS // 64)
    _enter(text.packed, text.blocks, text.gaps, shape, mers, words)
    return words


@njit(cache=True, nogil=True)
def _enter(text, blocks, gaps, shape, mers, words):
    sixteens = np.empty(BLOCK + 2 * MARGIN, dtype=np.uint32)
    places = np.empty(BLOCK, dtype=np.uint64)
    bits = np.empty(BLOCK, dtype=np.uint64)
    inside = np.empty(BLOCK, dtype=np.bool_)
    for first in range(0, shape.size, BLOCK):
        fill_from_text(text, first, sixteens.size, sixteens)
        inside[:] = True
        i = first_gap(blocks, shape, first)
        while i < gaps.size and np.int64(gaps[i]) < first + BLOCK + mers.length:
            begin = max(np.int64(gaps[i]) - mers.length + 1 - first, 0)
            inside[begin : min(np.int64(gaps[i + 1]) - first, BLOCK)] = False
            i += 2
        for at in range(BLOCK):
            places[at], bits[at] = filter_place(mer_at(sixteens[at], mers), words)
            if inside[at]:
                prefetch_to_write(words, places[at])
        for at in range(BLOCK):
            if inside[at]:
                words[places[at]] |= bits[at]
