"""Which windows of reads occur in a reference text: the index of a dictionary that never changes.

It keeps the text (0.75 bytes per base), a filter of its m-mers (1.25) and the places of its
minimizers (2 bytes at k = 31, 4 at k = 21); a hash table of its k-mers takes 13. Matching looks up
few windows one by one.

A block of 4,096 symbols passes through stages, each a plain loop, so that the cache misses of a
stage overlap. It begins with *runs*: the windows of a read, or of a part of it without gap codes.

    seek         a window of each run: its minimizer's places, then the text there, are prefetched
    follow       where the text has that window, the read is compared with it to both sides, 32
                 bases at a time; windows without a difference match. The other windows are cut into
                 runs of up to w windows that share an m-mer, if possible one with a difference
    keep         all windows of a run are mismatches if the text lacks that m-mer, or lacks the
                 m-mers on either side of it; the other runs are sought again

After two rounds the remaining windows are settled one by one. w = k - m + 1 windows of k symbols
share an m-mer: a read from elsewhere costs a look-up per w windows, a difference costs one per w of
the k windows that contain it, and a match costs none. At k = 31, with 1 % errors and half the reads
from elsewhere, that is 5 look-ups in the filter and 1 in the table of minimizers per 100 windows.

Where minimizers occur is in a table of cache lines:

    entry      key of the minimizer << 34 | place where it reads as it stands for itself; 0: free
    line       8 entries, filled from the first on; the highest bits of a key choose the line, and a
               full one spills into the next: bit 33 of its last entry says so

The place of a minimizer with more than MOST occurrences is FREQUENT: its k-mers are in a hash
table, with a place of each. Any k-mer of the text is found by its minimizer's places or in that
table, and a place leads to all that follows it in the text.

A look-up reads one line, seldom two. The table is a quarter to five eighths full.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numpy.typing import NDArray

from trie.cpu import array_pool, llvm
from trie.cpu.intrinsics import leading_zeros, prefetch_far, reversed_bits, trailing_zeros, word_at
from trie.cpu.jit import inner, njit
from trie.cpu.llvm import I8, I16, I32, INDEX, WORDS8, instruction
from trie.cpu.threads import run_ranges
from trie.cpu.vectors import aligned_words
from trie.index.buckets import find_slot
from trie.index.buckets import key_of as slot_key
from trie.index.kmer_index import KmerIndex
from trie.index.mers import (
    BLOCK,
    MARGIN,
    MOST_MERS,
    Mers,
    block_arrays,
    fill_sixteens,
    filter_place,
    is_turned,
    key_of,
    lacks,
    mer_at,
    mer_filter,
    mer_length,
    minimizer,
    put_orders,
)
from trie.index.reference_text import PAD, TextShape, reach, reference_text, unlike
from trie.windows import (
    check_batch,
    close_around_gaps,
    next_clear,
    next_set,
    open_windows,
    read_at,
    set_bits,
)

MOST: Final = 6
"""Most occurrences of a minimizer that are checked one by one."""

PLACE_BITS: Final = 34
FREQUENT: Final = 1
"""Stored instead of a place; no m-mer has that place."""

_SPILLED: Final = np.uint64(1 << 33)
_PLACE: Final = _SPILLED - np.uint64(1)
_PLACES_GRAIN: Final = 1 << 18
_SIXTEEN = ir.VectorType(I32, 16)
_SLOTS: Final = 8
_GAPS: Final = np.uint64(0x0404040404040404)
_PIECE: Final = 1 << 20  # symbols whose frequent k-mers are added together
_LEAST_LINES: Final = 16
_ORDERS: Final = BLOCK + MARGIN  # of a block
_STEP: Final = BLOCK - MOST_MERS  # places whose windows all lie in a block


class Places(NamedTuple):
    """The table, and the hash table of frequent minimizers' k-mers, as kernels take them.

    shift: 2m - bits of a line's number. keys, places, key_shift: of a ``KmerTable`` with places.
    """

    entries: NDArray[np.uint64]
    shift: np.uint64
    keys: NDArray[np.uint64]
    places: NDArray[np.uint32]
    key_shift: np.uint64


def minimizer_places(
    half: NDArray[np.uint8], size: int, k: int, mers: Mers, threads: int = 1
) -> Places:
    """The places of the minimizers of ``padded`` base codes (``half``) in a text of ``size``."""

    def places_of_part(start: int, stop: int) -> NDArray[np.uint64]:
        entries = np.empty(stop - start, dtype=np.uint64)
        return entries[: _minimizers(half, size, mers, start, stop, entries, *block_arrays())]

    parts = run_ranges(places_of_part, PAD, half.size - PAD, threads, grain=_PLACES_GRAIN)
    entries = np.concatenate([np.empty(0, np.uint64), *parts])
    entries.sort()
    bits = max(_LEAST_LINES, -(-entries.size // 5) - 1).bit_length()
    shift = np.uint64(2 * mers.length - bits)
    table = aligned_words(_SLOTS << bits)
    frequent = _fill(entries, table, shift)
    kmers = KmerIndex(k, with_values=True)
    if frequent:
        _add_frequent(kmers, half, size, mers, table, shift, threads)
    return Places(table, shift, *kmers.arrays())


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


@instruction(types.uint8, None, INDEX, types.uint64)
def with_key(builder: Any, entries: Any, at: Any, key: Any) -> Any:
    """Bit i is set where entry at + i of a line has that key."""
    line = builder.load(llvm.element(builder, entries, at, WORDS8), align=64)
    keys = builder.lshr(line, llvm.constant(WORDS8, PLACE_BITS))
    return builder.bitcast(builder.icmp_unsigned("==", keys, llvm.spread(builder, key, WORDS8)), I8)


@inner
def _fill_orders(half, first, mers, fours, sixteens, orders):
    """The sixteens of a block of a text, and the order of each m-mer."""
    fill_sixteens(half, first, fours, sixteens)
    for at in range(0, _ORDERS, 16):
        put_orders(sixteens, at, mers.mask, mers.shift, mers.unused, orders)


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


@njit(cache=True, nogil=True)
def _minimizers(half, size, mers, start, stop, entries, fours, sixteens):
    """Write an entry for each minimizer at the symbols [start, stop); their number.

    An m-mer is a minimizer if some window has no lesser m-mer: if it is the greatest of the least
    m-mers of the windows that hold it. Windows with a gap code count too, which adds a few entries.
    """
    orders = np.empty(_ORDERS + MARGIN, dtype=np.uint32)
    others = np.empty(_ORDERS + MARGIN, dtype=np.uint32)
    filled = 0
    for first in range(start, stop, _STEP):
        origin = first - MOST_MERS
        _fill_orders(half, origin, mers, fours, sixteens, orders)
        for i in range(others.size):
            others[i] = orders[i]
        _least_ahead(others, mers.width)
        # the greatest are the least of the complements
        for i in range(others.size):
            others[i] = ~others[i]
        _least_ahead(others, mers.width)
        for i in range(others.size):
            others[i] = ~others[i]
        for begin in range(MOST_MERS, MOST_MERS + min(_STEP, stop - first), 16):
            chosen = np.uint64(_equal_words(orders, begin, others, begin - mers.width + 1))
            while chosen != 0:
                at = begin + np.int64(trailing_zeros(chosen))
                chosen &= chosen - np.uint64(1)
                place = origin + at
                symbols = word_at(half, place) | word_at(half, place + mers.length - 8)
                if place < stop and symbols & _GAPS == 0:
                    if is_turned(sixteens[at], mers):
                        place = size - place - mers.length
                    key = key_of(orders[at], mers) << np.uint64(PLACE_BITS)
                    entries[filled] = key | np.uint64(place)
                    filled += 1
    return filled


@njit(cache=True, nogil=True)
def _fill(entries, table, shift):
    """Put ascending entries into the empty table; the number of frequent minimizers."""
    frequent = 0
    last = np.uint64(table.size - 1)
    begin = 0
    while begin < entries.size:
        key = entries[begin] >> np.uint64(PLACE_BITS)
        end = begin + 1
        while end < entries.size and entries[end] >> np.uint64(PLACE_BITS) == key:
            end += 1
        often = end - begin > MOST
        frequent += often
        if often:
            entries[begin] = key << np.uint64(PLACE_BITS) | np.uint64(FREQUENT)
        at = line_of(key, shift)
        for i in range(begin, begin + 1 if often else end):
            while table[at] != 0:
                if at & np.uint64(_SLOTS - 1) == _SLOTS - 1:
                    table[at] |= _SPILLED
                at = (at + np.uint64(1)) & last
            table[at] = entries[i]
        begin = end
    return frequent


def _add_frequent(
    kmers: KmerIndex,
    half: NDArray[np.uint8],
    size: int,
    mers: Mers,
    table: NDArray[np.uint64],
    shift: np.uint64,
    threads: int,
) -> None:
    """Add the k-mers of frequent minimizers, each with the place of its first occurrence."""
    starts = np.zeros(half.size // 32 + 1, dtype=np.uint32)
    codes, places = np.empty(_PIECE, np.uint64), np.empty(_PIECE, np.uint32)
    for first in range(0, half.size, _PIECE):
        stop = min(first + _PIECE, half.size)
        count = _frequent_kmers(
            half, size, kmers.k, mers, table, shift, first, stop, starts, codes, places,
            *block_arrays(),
        )  # fmt: skip
        kmers.add(codes[:count], places[:count], threads)


@njit(cache=True, nogil=True)
def _frequent_kmers(
    half, size, k, mers, table, shift, start, stop, starts, codes, places, fours, sixteens
):
    """Write the k-mers with a frequent minimizer that begin in [start, stop), and their places."""
    orders = np.empty(_ORDERS + MARGIN, dtype=np.uint32)
    offsets = np.array([0, half.size])
    filled = 0
    for first in range(start, stop, BLOCK):
        end = min(first + BLOCK, stop)
        open_windows(offsets, k, 0, first, end, starts)
        close_around_gaps(half, k, first, min(end + k - 1, half.size), first, end, starts)
        _fill_orders(half, first, mers, fours, sixteens, orders)
        _least_ahead(orders, mers.width)
        frequent = False
        for at in range(end - first):
            if at == 0 or orders[at] != orders[at - 1]:
                key = key_of(orders[at], mers)
                line = line_of(key, shift)
                found = with_key(table, line, key)
                while found == 0 and spills(table, line):
                    line = next_line(table, line)
                    found = with_key(table, line, key)
                slot = line + np.uint64(trailing_zeros(found))
                frequent = found != 0 and place_in(table[slot]) == FREQUENT
            place = first + at
            if frequent and starts[place >> 5] >> np.uint32(place & 31) & np.uint32(1):
                code, turned = kmer_at(sixteens, at, k, mers.unused == 0)
                codes[filled] = code
                places[filled] = size - place - k if turned else place
                filled += 1
    return filled


@inner
def line_of(key, shift):
    """The first entry of a key's line."""
    return (key >> shift) << np.uint64(3)


@inner
def spills(entries, line):
    """Whether entries of this or an earlier line are in the next line."""
    return entries[line + np.uint64(_SLOTS - 1)] & _SPILLED != 0


@inner
def next_line(entries, line):
    """The line that a full one spills into."""
    return (line + np.uint64(_SLOTS)) & np.uint64(entries.size - 1)


@inner
def place_in(entry):
    """The place of an entry."""
    return np.int64(entry & _PLACE)


@inner
def kmer_at(sixteens, at, k, canonical):
    """A number for the k-mer at a symbol of a block, and whether it is the reverse complement's.

    The first base is lowest, so this is not a k-mer code.
    """
    spare = np.uint64(64 - 2 * k)
    word = np.uint64(sixteens[at]) | np.uint64(sixteens[at + 16]) << np.uint64(32)
    kmer = (word << spare) >> spare
    if not canonical:
        return kmer, False
    one = np.uint64(1)
    low = np.uint64(0x5555555555555555)
    back = np.uint64(reversed_bits(~word << spare))
    back = (back >> one) & low | (back & low) << one
    return min(kmer, back), back < kmer


_TRIES: Final = 4
"""Stop following a read after this many differences without a match between them."""


_ROUNDS: Final = 2

# of a run: its first window, the one to seek, and the ends of the run's and the read's windows
_BEGIN, _SOUGHT, _STOP, _END = range(4)


@inner
def _first_runs(starts, first, end, runs):
    """Write the runs of consecutive windows of a block; returns their number."""
    count = np.int64(0)
    before = np.uint32(0)
    for word in range(first >> 5, (end + 31) >> 5):
        bits = starts[word]
        edges = np.uint32(bits ^ np.uint32(np.uint32(bits << np.uint32(1)) | before))
        before = np.uint32(bits >> np.uint32(31))
        while edges != 0:
            bit = trailing_zeros(edges)
            edges = np.uint32(edges & np.uint32(edges - np.uint32(1)))
            at = 32 * word + np.int64(bit) - first
            if np.uint32(bits >> bit) & np.uint32(1):
                runs[count, _BEGIN] = runs[count, _SOUGHT] = at
            else:
                runs[count, _STOP] = runs[count, _END] = at
                count += 1
    if before:
        runs[count, _STOP] = runs[count, _END] = end - first
        count += 1
    return count


@inner
def _seek(shape, text, entries, sixteens, runs, count, keys, lasts):
    """Prefetch the lines of the table, then of the text, where the sought windows may be.

    keys, lasts: receive the minimizers of these windows.
    """
    for i in range(count):
        keys[i], lasts[i] = minimizer(sixteens, runs[i, _SOUGHT], shape.mers)
        prefetch_far(entries, line_of(keys[i], shape.shift))
    for i in range(count):
        line = line_of(keys[i], shape.shift)
        found = with_key(entries, line, keys[i])
        if found != 0:
            entry = entries[line + np.uint64(trailing_zeros(found))]
            shift = _shift_of(shape, sixteens, lasts[i], entry)
            prefetch_far(text, (runs[i, _SOUGHT] + shift) >> 2)


@inner
def _shift_of(shape, sixteens, last, entry):
    """The shift from symbols of a block to places, if the m-mer at ``last`` is an entry's."""
    place = place_in(entry)
    if is_turned(sixteens[last], shape.mers):
        place = shape.text.size - place - shape.mers.length
    return place - last


@inner
def _fit(shape, text, entries, keys, kmer_places, sixteens, at, key, last, limit):
    """How far the text agrees from a window on, and the shift; 0, 0 if it lacks the window.

    key, last: as ``minimizer`` has them.
    """
    k = shape.k
    line = line_of(key, shape.shift)
    while True:
        found = with_key(entries, line, key)
        while found != 0:
            entry = entries[line + np.uint64(trailing_zeros(found))]
            found &= np.uint8(found - np.uint8(1))
            shift = _shift_of(shape, sixteens, last, entry)
            if place_in(entry) == FREQUENT:
                kmer, turned = kmer_at(sixteens, at, k, shape.mers.unused == 0)
                slot = find_slot(keys, shape.key_shift, slot_key(kmer))
                if keys[slot] != slot_key(kmer):
                    return 0, 0
                place = np.int64(kmer_places[slot])
                shift = (shape.text.size - place - k if turned else place) - at
            end = reach(text, shape.text, shift, sixteens, at, limit)
            if end - at >= k:
                return end, shift
        if not spills(entries, line):
            return 0, 0
        line = next_line(entries, line)


@inner
def _cut(shape, filter_, sixteens, begin, stop, end, runs, words, bits, count):
    """Cut the windows [begin, stop) into runs that share an m-mer, which is to be looked up."""
    while begin < stop:
        last = min(begin + shape.mers.width, stop) - 1
        words[count], bits[count] = filter_place(mer_at(sixteens[last], shape.mers), filter_)
        prefetch_far(filter_, words[count])
        runs[count, _BEGIN] = begin
        runs[count, _SOUGHT] = last
        runs[count, _STOP] = begin = last + 1
        runs[count, _END] = end
        count += 1
    return count


@inner
def _follow(
    shape, text, filter_, entries, keys, kmer_places, sixteens, runs, run_count, sought, lasts,
    hits, hit_count, cut_runs, words, bits,
):  # fmt: skip
    """Compare reads with the text from the sought windows on.

    Appends to ``hits`` (first window, one past the last, shift) and cuts what does not match into
    ``cut_runs``; returns the numbers of both.
    """
    k = shape.k
    count = np.int64(0)
    settled = 0  # all earlier windows match or are in a run
    for i in range(run_count):
        begin = max(runs[i, _BEGIN], settled)
        at, stop, end = runs[i, _SOUGHT], runs[i, _STOP], runs[i, _END]
        if begin >= stop:
            continue
        limit = end + k - 1
        reached, shift = _fit(
            shape, text, entries, keys, kmer_places, sixteens, at, sought[i], lasts[i], limit
        )
        tries = _TRIES
        if reached:
            tries = 0
            apart = unlike(text, shape.text, begin + shift, sixteens, begin)
            apart &= (np.uint64(1) << np.uint64(2 * (at - begin))) - np.uint64(1)
            at = begin
            if apart != 0:
                at += ((63 - np.int64(leading_zeros(apart))) >> 1) + 1
        while tries < _TRIES:
            tries += 1
            if reached - at >= k:
                tries = 0
                hits[hit_count, 0] = at
                hits[hit_count, 1] = reached - k + 1
                hits[hit_count, 2] = shift
                hit_count += 1
                count = _cut(shape, filter_, sixteens, begin, at, end, cut_runs, words, bits, count)
                begin = reached - k + 1
            at = reached + 1
            if at >= end:
                break
            reached = reach(text, shape.text, shift, sixteens, at, limit)
        # a read that is not followed is cut up as a whole; otherwise later windows are sought too
        settled = min(max(at, stop), end)
        count = _cut(shape, filter_, sixteens, begin, settled, end, cut_runs, words, bits, count)
    return count, hit_count


@inner
def _keep(filter_, runs, words, bits, count, other_words, other_bits):
    """Move runs left open by one of two look-ups to the front; returns their number."""
    kept = 0
    for i in range(count):
        here = filter_[words[i]] & bits[i] == bits[i]
        here |= filter_[other_words[i]] & other_bits[i] == other_bits[i]
        for column in range(4):
            runs[kept, column] = runs[i, column]
        kept += np.int64(here)
    return kept


@inner
def _ask_beside(shape, filter_, sixteens, runs, count, words, bits, other_words, other_bits):
    """Prefetch the m-mers beside a run's shared one: together they are in all its windows."""
    for i in range(count):
        last = runs[i, _SOUGHT]
        before = last - 1 if runs[i, _BEGIN] < last else last + 1
        words[i], bits[i] = filter_place(mer_at(sixteens[before], shape.mers), filter_)
        prefetch_far(filter_, words[i])
        mer = mer_at(sixteens[last + 1], shape.mers)
        other_words[i], other_bits[i] = filter_place(mer, filter_)
        prefetch_far(filter_, other_words[i])


@inner
def _settle(
    shape, text, filter_, entries, keys, kmer_places, sixteens, runs, count, sought, lasts, hits,
    hit_count,
):  # fmt: skip
    """Settle the remaining windows one by one; returns the new number of hits."""
    k, mers = shape.k, shape.mers
    settled = 0
    for i in range(count):
        begin = max(runs[i, _BEGIN], settled)
        limit = runs[i, _END] + k - 1
        while begin < runs[i, _STOP]:
            at = begin + mers.width - 1
            if not lacks(filter_, sixteens, at, mers):
                key, last = sought[i], lasts[i]
                if begin != runs[i, _SOUGHT]:
                    key, last = minimizer(sixteens, begin, mers)
                end, shift = _fit(
                    shape, text, entries, keys, kmer_places, sixteens, begin, key, last, limit
                )
                if end:
                    hits[hit_count, 0] = begin
                    hits[hit_count, 1] = begin = end - k + 1
                    hits[hit_count, 2] = shift
                    hit_count += 1
                    continue
                step = 1
                while at > begin and not lacks(filter_, sixteens, at, mers):
                    at = max(at - step, begin)
                    step *= 2
            begin = at + 1
        settled = begin
    return hit_count


@inner
def _in_half(shape, place):
    """A k-mer's place in the text without its reverse complement, and 1, or -1 if it is there."""
    if place < shape.half:
        return place, 1
    return shape.text.size - place - shape.k, -1


@inner
def _write(shape, hits, count, first, matches, text_sets, sets, runs, run_count):
    """Write the matches of a block, and their sets and runs unless these are empty.

    Hits may overlap, runs do not. Returns the new number of runs.
    """
    one = np.uint64(1)
    for i in range(count):
        begin, end = hits[i, 0], hits[i, 1]
        if runs.size:
            at = next_clear(matches, first + begin, first + end)
            while at < first + end:
                stop = next_set(matches, at, first + end)
                runs[run_count, 0] = at
                runs[run_count, 1] = stop
                place, step = _in_half(shape, at - first + hits[i, 2])
                runs[run_count, 2] = place
                runs[run_count, 3] = step
                run_count += 1
                at = next_clear(matches, stop, first + end)
        set_bits(matches, first + begin, first + end)
        if sets.size:
            place, step = _in_half(shape, begin + hits[i, 2])
            # unsigned: numba would count a negative index from the end
            to, source = np.uint64(first + begin), np.uint64(place)
            stop = np.uint64(first + end)
            if step > 0:
                while to < stop:
                    sets[to] = text_sets[source]
                    to += one
                    source += one
            else:
                while to < stop:
                    sets[to] = text_sets[source]
                    to += one
                    source -= one
    return run_count


@njit(cache=True, nogil=True)
def match_range(
    shape, text, filter_, entries, keys, kmer_places, text_sets, bases, offsets, start, stop,
    starts, matches, sets, match_runs, fours, sixteens,
):  # fmt: skip
    """Match the windows that begin in [start, stop), 32 | start.

    shape: ``IndexShape``. starts, matches: uint32, bits of the symbols (``trie.windows``).
    sets: uint32[symbols], receives the set of each match, or empty. match_runs: int64[rows, 4],
    receives the runs (``TextIndex.match``), or empty. fours, sixteens: of a block.

    Returns where it stopped and the number of runs; earlier than ``stop`` if fewer than BLOCK rows
    are left.
    """
    match_run_count = np.int64(0)
    # arrays are separate arguments: taking them from a tuple costs atomic reference counts
    runs = np.empty((BLOCK, 4), dtype=np.int64)
    cut_runs = np.empty((BLOCK, 4), dtype=np.int64)
    hits = np.empty((BLOCK, 3), dtype=np.int64)
    words, bits = np.empty(BLOCK, dtype=np.uint64), np.empty(BLOCK, dtype=np.uint64)
    other_words, other_bits = np.empty(BLOCK, dtype=np.uint64), np.empty(BLOCK, dtype=np.uint64)
    sought, lasts = np.empty(BLOCK, dtype=np.uint64), np.empty(BLOCK, dtype=np.int64)
    k = shape.k
    read = read_at(offsets, start)
    for first in range(start, stop, BLOCK):
        if match_runs.size and len(match_runs) - match_run_count < BLOCK:
            return first, match_run_count
        end = min(first + BLOCK, stop)
        read = open_windows(offsets, k, read, first, end, starts)
        matches[first >> 5 : (end + 31) >> 5] = np.uint32(0)
        close_around_gaps(bases, k, first, min(end + k - 1, bases.size), first, end, starts)
        count = _first_runs(starts, first, end, runs)
        fill_sixteens(bases, first, fours, sixteens)
        hit_count = np.int64(0)
        for _ in range(_ROUNDS):
            _seek(shape, text, entries, sixteens, runs, count, sought, lasts)
            count, hit_count = _follow(
                shape, text, filter_, entries, keys, kmer_places, sixteens, runs, count, sought,
                lasts, hits, hit_count, cut_runs, words, bits,
            )  # fmt: skip
            count = _keep(filter_, cut_runs, words, bits, count, words, bits)
            runs, cut_runs = cut_runs, runs
        _ask_beside(shape, filter_, sixteens, runs, count, words, bits, other_words, other_bits)
        count = _keep(filter_, runs, words, bits, count, other_words, other_bits)
        for i in range(count):
            runs[i, _SOUGHT] = runs[i, _BEGIN]
        _seek(shape, text, entries, sixteens, runs, count, sought, lasts)
        hit_count = _settle(
            shape, text, filter_, entries, keys, kmer_places, sixteens, runs, count, sought, lasts,
            hits, hit_count,
        )  # fmt: skip
        match_run_count = _write(
            shape, hits, hit_count, first, matches, text_sets, sets, match_runs, match_run_count
        )
    return stop, match_run_count


MOST_SYMBOLS: Final = 1 << 30
"""Most symbols of a text: places in both orientations must fit 32 bits."""

MOST_REPEATS: Final = 4
LEAST_SYMBOLS: Final = 1 << 20

# symbols worth a thread: they take 0.5 ms, and handing over the GIL 0.1 ms
_GRAIN: Final = 1 << 17

# at most, in most batches; others take more than one step
_SYMBOLS_PER_RUN = 32

_NO_SETS = np.empty(0, dtype=np.uint32)
_NO_RUNS = np.empty((0, 4), dtype=np.int64)


class IndexShape(NamedTuple):
    """The parameters of an index, as kernels take them.

    half: symbols of the text without its reverse complement. shift, key_shift: of ``Places``.
    """

    k: int
    mers: Mers
    text: TextShape
    half: int
    shift: np.uint64
    key_shift: np.uint64


class TextIndex:
    """The index of a text with ``kmers`` distinct k-mers; ``half``: its ``padded`` base codes.

    sets: uint32[half], the set of the k-mer that begins at each symbol, if matches need sets.
    canonical: a k-mer and its reverse complement are the same. ValueError unless ``fits``.
    """

    def __init__(
        self,
        half: NDArray[np.uint8],
        k: int,
        kmers: int,
        *,
        canonical: bool,
        sets: NDArray[np.uint32] | None = None,
        threads: int = 1,
    ) -> None:
        if not self.fits(k, half.size, kmers):
            raise ValueError(
                f"a text of {half.size} symbols and {kmers} {k}-mers needs another index"
            )
        mers = Mers.of(k, mer_length(k, kmers), canonical=canonical)
        text, text_shape = reference_text(half, canonical=canonical)
        places = minimizer_places(half, text_shape.size, k, mers, threads)
        tables = places.entries, places.keys, places.places
        by_place = _NO_SETS if sets is None else sets
        self._shape = IndexShape(k, mers, text_shape, half.size, places.shift, places.key_shift)
        self._arrays = (text, mer_filter(half, mers, kmers), *tables, by_place)

    @staticmethod
    def fits(k: int, symbols: int, kmers: int) -> bool:
        """Whether a text of that size can have such an index, and it is useful.

        A text that repeats itself many times has only frequent minimizers.
        """
        least = symbols // MOST_REPEATS - LEAST_SYMBOLS
        return symbols <= MOST_SYMBOLS and kmers >= least and mer_length(k, kmers) > 0

    def memory_bytes(self) -> int:
        """Bytes of the arrays of the index."""
        return sum(array.nbytes for array in self._arrays)

    def match(
        self,
        bases: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        *,
        threads: int = 1,
        sets: NDArray[np.uint32] | None = None,
        runs: list[NDArray[np.int64]] | None = None,
    ) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        """The starts of the windows of a batch, and which windows occur in the text.

        ``bases`` uint8[total], ``offsets`` int64[reads + 1]. Both results are uint32, bit s % 32 of
        word s / 32 for symbol s. ``sets`` uint32[total], if given, receives the set of each match
        and stays unchanged elsewhere. Raises BatchShapeError for invalid offsets.

        ``runs``, if given, receives arrays int64[n, 4] that hold every match once: first window,
        one past the last, place of the first one's k-mer in ``half``, and 1 if the places of the
        next ones ascend, -1 if they descend (the read has the other strand).
        """
        bases, offsets = check_batch(bases, offsets)
        # two words at least: events are read eight bytes at a time
        words = max(-(-bases.size // 32), 2)
        starts, matches = (array_pool.empty(words, np.uint32) for _ in range(2))
        starts[-2:] = matches[-2:] = 0  # they may lie beyond the symbols
        out = _NO_SETS if sets is None else sets

        def match(start: int, stop: int) -> None:
            found = _NO_RUNS
            if runs is not None:
                rows = 2 * BLOCK + (stop - start) // _SYMBOLS_PER_RUN
                found = array_pool.empty(4 * rows, np.int64).reshape(rows, 4)
            while start < stop:
                start, count = match_range(
                    self._shape, *self._arrays, bases, offsets, start, stop, starts, matches, out,
                    found, *block_arrays(),
                )  # fmt: skip
                if runs is not None and count:
                    runs.append(found[:count].copy())

        run_ranges(match, 0, bases.size, threads, grain=_GRAIN, align=64)
        return starts, matches
