"""Which windows of reads occur in a reference text: the index of a dictionary that never changes.

It keeps the text (0.27 bytes per base), and the places of its minimizers (0.8 bytes at k = 31, 2 at
k = 21). A text of up to FILTERED symbols also has a filter of its m-mers (1.25). Matching looks up
few windows one by one.

A block of 4,096 symbols passes through stages, each a plain loop, so that the cache misses of a
stage overlap. It begins with *runs*: the windows of a read, or of a part of it without gap codes.

    seek         a window of each run is looked up; none of a read if the filter lacks an m-mer of
                 its first window
    follow       where the text has that window, the read is compared with it to both sides, 32
                 bases at a time; windows without a difference match. The other windows are cut into
                 runs of up to w windows that share an m-mer, if possible one with a difference
    keep         all windows of a run are mismatches if the filter lacks that m-mer, or lacks the
                 m-mers on either side of it; the other runs are sought again, one window of those
                 that touch
    settle       the remaining windows are looked up: one look-up for all that share a minimizer

w = k - m + 1 windows of k symbols share an m-mer: a read from elsewhere costs a look-up per w
windows in the filter, or per half as many in the buckets; a difference costs one per w of the k
windows that contain it, and a match costs none.

A look-up (``trie.index.places``) reads a bucket's offset, its fingerprints, and, where one is
right, the place and the text there: four cache lines, two for most m-mers that the text lacks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from trie.cpu import array_pool
from trie.cpu.intrinsics import leading_zeros, prefetch_far, trailing_zeros, word_at
from trie.cpu.jit import inner, njit
from trie.cpu.threads import run_ranges
from trie.index.mers import (
    BLOCK,
    MARGIN,
    Mers,
    block_arrays,
    fill_sixteens,
    filter_place,
    mer_at,
    mer_lengths,
    minimizer,
    number_at,
    put_orders,
    reversed_pairs,
)
from trie.index.places import (
    FIRST,
    FULL,
    KMERS,
    LEAST_PLACES,
    SECOND,
    IndexShape,
    bucket_of,
    find_places,
    is_full,
    key_of,
    mer_filter,
    print_of,
)
from trie.index.reference_text import ReferenceText, TextShape, reach, symbols_at, unlike
from trie.windows import (
    check_batch,
    close_around_gaps,
    next_clear,
    next_set,
    open_windows,
    read_at,
    set_bits,
)

FILTERED: Final = 1 << 24
"""Symbols of the largest text with a filter."""

_TRIES: Final = 4
"""Stop following a read after this many differences without a match between them."""

_ROUNDS: Final = 2
_PIECE: Final = 128  # windows of a read, of which one is sought

# of a run: its first window, the one to seek, and the ends of the run's and the read's windows
_BEGIN, _SOUGHT, _STOP, _END = range(4)
_NONE: Final = -1  # no window is sought

# of a look-up: the windows that share its m-mer, the end of the read's windows, where the m-mer
# begins, its level, the slots of the bucket that are still to be compared, and the look-ups that
# replace it, if any
_FIRST, _LAST, _LIMIT, _AT, _LEVEL, _LOW, _HIGH, _NEXT = range(8)
_EACH_BYTE: Final = np.uint64(0x0101010101010101)
_OFFSET: Final = np.uint32(FULL - 1)


@inner
def _first_runs(starts, first, end, whole, runs):
    """Write the runs of consecutive windows of a block, or pieces of them; returns their number."""
    count, before = np.int64(0), np.uint32(0)
    for word in range(first >> 5, (end + 31) >> 5):
        bits = starts[word]
        at = 32 * word - first
        if not whole and before & bits & np.uint32(1) and at - runs[count, _BEGIN] >= _PIECE:
            runs[count, _STOP] = runs[count, _END] = at
            count += 1
            runs[count, _BEGIN] = runs[count, _SOUGHT] = at
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
    return count + (before != 0)


@inner
def _length(shape, level):
    """The symbols of what is looked up on a level."""
    return (
        shape.mers.length if level == FIRST else shape.longer.length if level == SECOND else shape.k
    )


@inner
def _sort(mers, sixteens, begin, stop, orders):
    """Write the orders that ``_ask`` needs for the windows [begin, stop)."""
    for at in range(begin, stop + mers.width - 1, 16):
        put_orders(sixteens, at, mers, orders, at)


@inner
def _ask(shape, offsets, sixteens, orders, jobs, keys, count, begin, stop, limit, level):
    """Add the look-ups, on a level, of the windows [begin, stop) of a read; the new number."""
    if (level == FIRST and shape.mers.width == 0) or (level == SECOND and shape.longer.width == 0):
        level = KMERS
    length = _length(shape, level)
    canonical = shape.text.both > shape.text.size
    mers = shape.mers if level == FIRST else shape.longer
    while begin < stop:
        at, end = begin, begin + 1
        if level != KMERS:
            at, end = minimizer(orders, begin, mers)
        end = min(end, stop)
        keys[count] = key_of(number_at(sixteens, at, length, canonical)[0])
        prefetch_far(offsets, bucket_of(keys[count], offsets))
        prefetch_far(offsets, bucket_of(keys[count], offsets) + np.uint64(1))
        jobs[count, _FIRST], jobs[count, _LAST], jobs[count, _LIMIT] = begin, end, limit
        jobs[count, _AT], jobs[count, _LEVEL], jobs[count, _NEXT] = at, level, -1
        count += 1
        begin = end
    return count


@inner
def _open(shape, offsets, prints, full, sixteens, orders, jobs, keys, count):
    """Find the bucket of each look-up; full ones are replaced. The new number of look-ups."""
    done = 0
    asked = count
    while done < asked:
        for i in range(done, asked):
            bucket = np.int64(bucket_of(keys[i], offsets))
            low, high = offsets[bucket], offsets[bucket + 1]
            jobs[i, _LOW] = low & _OFFSET
            jobs[i, _HIGH] = min(np.int64(high & _OFFSET), prints.size)
            if low & FULL:
                prefetch_far(full, bucket >> 5)
            if jobs[i, _LOW] < jobs[i, _HIGH]:
                # eight are read, which may lie on two lines
                prefetch_far(prints, jobs[i, _LOW])
                prefetch_far(prints, jobs[i, _LOW] + LEAST_PLACES - 1)
        for i in range(done, asked):
            bucket, level = np.int64(bucket_of(keys[i], offsets)), jobs[i, _LEVEL]
            if offsets[bucket] & FULL and level != KMERS and is_full(full, bucket, level):
                jobs[i, _HIGH] = 0
                jobs[i, _NEXT] = count
                _sort(shape.longer, sixteens, jobs[i, _FIRST], jobs[i, _LAST], orders)
                count = _ask(
                    shape, offsets, sixteens, orders, jobs, keys, count, jobs[i, _FIRST],
                    jobs[i, _LAST], jobs[i, _LIMIT], level + 1,
                )  # fmt: skip
        done, asked = asked, count
    return count


@inner
def _next_print(prints, key, low, high):
    """The first slot in [low, high) with the fingerprint of a key, or ``high``."""
    wanted = np.uint64(print_of(key)) * _EACH_BYTE
    last = prints.size - LEAST_PLACES
    while low < high:
        at = min(low, last)
        apart = np.uint64(word_at(prints, at)) >> np.uint64(8 * (low - at)) ^ wanted
        equal = (apart - _EACH_BYTE) & ~apart & _EACH_BYTE << np.uint64(7)
        if equal != 0:  # its lowest bit is that of a zero byte
            return min(low + (np.int64(trailing_zeros(equal)) >> 3), high)
        low += 8
    return high


@inner
def _look_up(
    shape, text, blocks, offsets, places, prints, full, sixteens, orders, runs, count, jobs, keys,
    seeks,
):  # fmt: skip
    """Look up the windows of runs, or with ``seeks`` the sought one of each; the look-ups."""
    # a vector is loaded faster some time after its parts were stored
    for i in range(count):
        begin = runs[i, _SOUGHT] if seeks else runs[i, _BEGIN]
        if begin == _NONE:
            continue
        _sort(shape.mers, sixteens, begin, begin + 1 if seeks else runs[i, _STOP], orders)
    asked = np.int64(0)
    for i in range(count):
        begin = runs[i, _SOUGHT] if seeks else runs[i, _BEGIN]
        if begin == _NONE:
            continue
        stop = begin + 1 if seeks else runs[i, _STOP]
        asked = _ask(
            shape, offsets, sixteens, orders, jobs, keys, asked, begin, stop, runs[i, _END], FIRST
        )
    asked = _open(shape, offsets, prints, full, sixteens, orders, jobs, keys, asked)
    _load(text, blocks, places, prints, jobs, keys, asked)
    return asked


@inner
def _load(text, blocks, places, prints, jobs, keys, count):
    """Move each look-up to its first fingerprint, and prefetch the text where its m-mer may be."""
    for i in range(count):
        jobs[i, _LOW] = slot = _next_print(prints, keys[i], jobs[i, _LOW], jobs[i, _HIGH])
        if slot < jobs[i, _HIGH]:
            prefetch_far(places, slot)
    for i in range(count):
        slot, high = jobs[i, _LOW], jobs[i, _HIGH]
        while slot < high:
            prefetch_far(text, np.int64(places[slot]) >> 2)
            prefetch_far(blocks, np.int64(places[slot]) >> 13)
            slot = _next_print(prints, keys[i], slot + 1, high)


@inner
def _shift(shape, text, places, sixteens, jobs, i, slot):
    """The shift from symbols of a block to places, if the m-mer is there; and whether it is."""
    place = np.int64(places[slot])
    if place > shape.text.size:
        return np.int64(0), False
    at, length = jobs[i, _AT], _length(shape, jobs[i, _LEVEL])
    spare = np.uint64(64 - 2 * length)
    here = (np.uint64(sixteens[at]) | np.uint64(sixteens[at + 16]) << np.uint64(32)) << spare
    there = symbols_at(text, place)
    if here == there << spare:
        return place - at, True
    canonical = shape.text.both > shape.text.size
    if canonical and here >> spare == reversed_pairs(~there << spare):
        return shape.text.both - place - length - at, True
    return np.int64(0), False


@inner
def _first_alike(text, blocks, gaps, shape, shift, sixteens, begin, at):
    """The first symbol from ``begin`` on such that it and all up to ``at`` are as in the text."""
    apart = unlike(text, blocks, gaps, shape, begin + shift, sixteens, begin)
    apart &= (np.uint64(1) << np.uint64(2 * (at - begin))) - np.uint64(1)
    if apart == 0:
        return begin
    return begin + ((63 - np.int64(leading_zeros(apart))) >> 1) + 1


@inner
def _cut(shape, filter_, sixteens, begin, stop, end, runs, words, bits, count):
    """Cut the windows [begin, stop) into runs that share an m-mer, which is to be looked up.

    Without a filter they are one run.
    """
    if filter_.size == 0 and begin < stop:
        runs[count, _BEGIN], runs[count, _STOP], runs[count, _END] = begin, stop, end
        return count + 1
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
    shape, text, blocks, gaps, filter_, places, prints, sixteens, runs, run_count, jobs, keys,
    first_block, matches, match_runs, match_run_count, cut_runs, words, bits,
):  # fmt: skip
    """Compare reads with the text from the sought windows on.

    Writes the matches, and cuts what does not match into ``cut_runs``; returns the numbers of these
    and of runs of matches.
    """
    k = shape.k
    count = np.int64(0)
    settled = asked = 0  # all earlier windows match or are in a run
    for i in range(run_count):
        begin = max(runs[i, _BEGIN], settled)
        at, stop, end = runs[i, _SOUGHT], runs[i, _STOP], runs[i, _END]
        if begin >= stop:
            asked += at != _NONE
            continue
        limit = end + k - 1
        tries, reached, shift = _TRIES, at, np.int64(0)
        slot = high = job = 0
        if at != _NONE:
            job = asked
            asked += 1
            while jobs[job, _NEXT] >= 0:
                job = jobs[job, _NEXT]
            slot, high = jobs[job, _LOW], jobs[job, _HIGH]
        if at < begin:  # not sought, or a read that was followed to here
            at, slot = begin, high
        while slot < high:
            shift, there = _shift(shape, text, places, sixteens, jobs, job, slot)
            if there:
                reached = reach(text, blocks, gaps, shape.text, shift, sixteens, at, limit)
                if reached - at >= k:
                    tries = 0
                    at = _first_alike(text, blocks, gaps, shape.text, shift, sixteens, begin, at)
                    break
            slot = _next_print(prints, keys[job], slot + 1, high)
        while tries < _TRIES:
            tries += 1
            if reached - at >= k:
                tries = 0
                match_run_count = _write(
                    shape, first_block, at, reached - k + 1, shift, matches, match_runs,
                    match_run_count,
                )  # fmt: skip
                count = _cut(shape, filter_, sixteens, begin, at, end, cut_runs, words, bits, count)
                begin = reached - k + 1
            at = reached + 1
            if at >= end:
                break
            reached = reach(text, blocks, gaps, shape.text, shift, sixteens, at, limit)
        # a read that is not followed is cut up as a whole; otherwise later windows are sought too
        settled = min(max(at, stop), end)
        count = _cut(shape, filter_, sixteens, begin, settled, end, cut_runs, words, bits, count)
    return count, match_run_count


@inner
def _skip_foreign(shape, filter_, sixteens, runs, count, words, bits):
    """Seek no window of a read if the filter lacks the last m-mer of its first window."""
    for i in range(count):
        mer = mer_at(sixteens[runs[i, _BEGIN] + shape.mers.width - 1], shape.mers)
        words[i], bits[i] = filter_place(mer, filter_)
        prefetch_far(filter_, words[i])
    for i in range(count):
        if filter_[words[i]] & bits[i] != bits[i]:
            runs[i, _SOUGHT] = _NONE


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
def _join(runs, count):
    """Join runs of a read that touch; the window of the first is sought. The new number."""
    joined = 0
    for i in range(count):
        if joined and runs[joined - 1, _STOP] == runs[i, _BEGIN] < runs[joined - 1, _END]:
            runs[joined - 1, _STOP] = runs[i, _STOP]
            continue
        for column in range(4):
            runs[joined, column] = runs[i, column]
        joined += 1
    return joined


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
    shape, text, blocks, gaps, places, prints, sixteens, jobs, keys, count, first_block, matches,
    match_runs, match_run_count,
):  # fmt: skip
    """Write the matches of look-ups; returns the new number of runs of matches."""
    k = shape.k
    for i in range(count):
        begin, stop = jobs[i, _FIRST], jobs[i, _LAST]
        slot, high = jobs[i, _LOW], jobs[i, _HIGH]
        if slot >= high:
            continue
        if next_clear(matches, first_block + begin, first_block + stop) == first_block + stop:
            continue
        limit = jobs[i, _LIMIT] + k - 1
        while slot < high:
            shift, there = _shift(shape, text, places, sixteens, jobs, i, slot)
            slot = _next_print(prints, keys[i], slot + 1, high)
            if not there:
                continue
            at = jobs[i, _AT]
            reached = reach(text, blocks, gaps, shape.text, shift, sixteens, at, limit)
            at = _first_alike(text, blocks, gaps, shape.text, shift, sixteens, begin, at)
            if reached - at >= k:
                match_run_count = _write(
                    shape, first_block, at, reached - k + 1, shift, matches, match_runs,
                    match_run_count,
                )  # fmt: skip
                if at == begin and reached - k + 1 >= stop:
                    break
    return match_run_count


@inner
def _write(shape, first, begin, end, shift, matches, runs, run_count):
    """Write the matches of the windows [begin, end) of a block, and their runs unless empty.

    Matches may be known, runs hold each only once. Returns the new number of runs.
    """
    if runs.size:
        at = next_clear(matches, first + begin, first + end)
        while at < first + end:
            stop = next_set(matches, at, first + end)
            place, step = at - first + shift, 1
            if place >= shape.text.size:
                place, step = shape.text.both - place - shape.k, -1
            runs[run_count, 0] = at
            runs[run_count, 1] = stop
            runs[run_count, 2] = place
            runs[run_count, 3] = step
            run_count += 1
            at = next_clear(matches, stop, first + end)
    set_bits(matches, first + begin, first + end)
    return run_count


@inner
def _order(runs, first, stop):
    """Sort runs [first, stop), which nearly ascend, by window."""
    for i in range(first + 1, stop):
        begin, end, place, step = runs[i, 0], runs[i, 1], runs[i, 2], runs[i, 3]
        at = i
        while at > first and runs[at - 1, 0] > begin:
            for column in range(4):
                runs[at, column] = runs[at - 1, column]
            at -= 1
        runs[at, 0], runs[at, 1], runs[at, 2], runs[at, 3] = begin, end, place, step


@njit(cache=True, nogil=True)
def match_range(
    shape, text, blocks, gaps, filter_, buckets, places, prints, full, bases, offsets, start,
    stop, seeks, settles, starts, matches, match_runs, fours, sixteens,
):  # fmt: skip
    """Match the windows that begin in [start, stop), 32 | start.

    seeks, settles: as for ``TextIndex.match``.
    shape: ``IndexShape``. starts, matches: uint32, bits of the symbols (``trie.windows``).
    match_runs: int64[rows, 4], receives the runs (``TextIndex.match``), or empty. fours, sixteens:
    of a block.

    Returns where it stopped and the number of runs; earlier than ``stop`` if fewer than BLOCK rows
    are left.
    """
    match_run_count = np.int64(0)
    # arrays are separate arguments: taking them from a tuple costs atomic reference counts
    runs = np.empty((BLOCK, 4), dtype=np.int64)
    cut_runs = np.empty((BLOCK, 4), dtype=np.int64)
    # on each level one for each window at most
    jobs = np.empty((3 * BLOCK, 8), dtype=np.int64)
    keys = np.empty(3 * BLOCK, dtype=np.uint64)
    orders = np.empty(BLOCK + 2 * MARGIN, dtype=np.uint32)
    words, bits = np.empty(BLOCK, dtype=np.uint64), np.empty(BLOCK, dtype=np.uint64)
    other_words, other_bits = np.empty(BLOCK, dtype=np.uint64), np.empty(BLOCK, dtype=np.uint64)
    k = shape.k
    read = read_at(offsets, start)
    for first in range(start, stop, BLOCK):
        earlier = match_run_count
        if match_runs.size and len(match_runs) - match_run_count < BLOCK:
            return first, match_run_count
        end = min(first + BLOCK, stop)
        read = open_windows(offsets, k, read, first, end, starts)
        matches[first >> 5 : (end + 31) >> 5] = np.uint32(0)
        close_around_gaps(bases, k, first, min(end + k - 1, bases.size), first, end, starts)
        count = _first_runs(starts, first, end, settles or not seeks, runs)
        fill_sixteens(bases, first, fours, sixteens)
        if filter_.size:
            _skip_foreign(shape, filter_, sixteens, runs, count, words, bits)
        for _ in range(_ROUNDS if filter_.size and settles else np.int64(seeks)):
            asked = _look_up(
                shape, text, blocks, buckets, places, prints, full, sixteens, orders, runs, count,
                jobs, keys, True,
            )  # fmt: skip
            count, match_run_count = _follow(
                shape, text, blocks, gaps, filter_, places, prints, sixteens, runs, count, jobs,
                keys, first, matches, match_runs, match_run_count, cut_runs, words, bits,
            )  # fmt: skip
            runs, cut_runs = cut_runs, runs
            if filter_.size:
                count = _keep(filter_, runs, words, bits, count, words, bits)
                _ask_beside(
                    shape, filter_, sixteens, runs, count, words, bits, other_words, other_bits
                )
                count = _keep(filter_, runs, words, bits, count, other_words, other_bits)
                count = _join(runs, count)
        if not settles:
            count = np.int64(0)
        asked = _look_up(
            shape, text, blocks, buckets, places, prints, full, sixteens, orders, runs, count,
            jobs, keys, False,
        )  # fmt: skip
        match_run_count = _settle(
            shape, text, blocks, gaps, places, prints, sixteens, jobs, keys, asked, first, matches,
            match_runs, match_run_count,
        )  # fmt: skip
        _order(match_runs, earlier, match_run_count)
    return stop, match_run_count


# symbols worth a thread: they take 0.5 ms, and handing over the GIL 0.1 ms
_GRAIN: Final = 1 << 17

# at most, in most batches; others take more than one step
_SYMBOLS_PER_RUN = 32

_NO_RUNS = np.empty((0, 4), dtype=np.int64)
_NO_FILTER = np.empty(0, dtype=np.uint64)


def index_shape(size: int, k: int, *, canonical: bool) -> IndexShape:
    """The parameters of an index of windows of k symbols, for a text of that size."""
    mers, longer = (Mers.of(k, length, canonical=canonical) for length in mer_lengths(k, size))
    return IndexShape(k, mers, longer, TextShape(size, 2 * size if canonical else size))


def has_filter(shape: IndexShape) -> bool:
    """Whether an index has a filter of its m-mers."""
    return shape.mers.width > 0 and shape.mers.ahead == 0 and shape.text.size <= FILTERED


class TextIndex:
    """The index of a text. shape, arrays: as kernels take them. repeats: of ``list_kmers``."""

    def __init__(self, shape: IndexShape, *arrays: NDArray[Any]) -> None:
        self.shape = shape
        self.arrays = arrays
        self.repeats: list[NDArray[np.uint32]] | None = None

    @classmethod
    def of(
        cls,
        text: ReferenceText,
        k: int,
        *,
        canonical: bool,
        threads: int = 1,
        on_work: Callable[[float], None] = lambda done: None,
    ) -> Self:
        """Index a text. canonical: a k-mer and its reverse complement are the same.

        on_work: gets the share of the work that is done.

        Raises TooManyPlacesError if it has too many different k-mers.
        """
        shape = index_shape(text.size, k, canonical=canonical)
        buckets, repeats = find_places(text, shape, threads, on_work)
        filter_ = mer_filter(text, shape.mers, shape.text) if has_filter(shape) else _NO_FILTER
        made = cls(shape, text.packed, text.blocks, text.gaps, filter_, *buckets)
        made.repeats = repeats
        return made

    def memory_bytes(self) -> int:
        """Bytes of the arrays of the index."""
        return sum(array.nbytes for array in self.arrays)

    def match(
        self,
        bases: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        *,
        threads: int = 1,
        runs: list[NDArray[np.int64]] | None = None,
        seeks: bool = True,
        settles: bool = True,
    ) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        """The starts of the windows of a batch, and which windows occur in the text.

        ``bases`` uint8[total], ``offsets`` int64[reads + 1]. Both results are uint32, bit s % 32 of
        word s / 32 for symbol s. Raises BatchShapeError for invalid offsets.

        ``runs``, if given, receives arrays int64[n, 4], by ascending window, that hold every match
        once: first window, one past the last, place of the first one's k-mer in the text, and 1 if
        the places of the next ones ascend, -1 if they descend (the read has the other strand).

        Without ``settles`` only the matches around a window of each piece of a read are found,
        without ``seeks`` none of these are sought first, which suits reads that have none.
        """
        bases, offsets = check_batch(bases, offsets)
        # two words at least: events are read eight bytes at a time
        words = max(-(-bases.size // 32), 2)
        starts, matches = (array_pool.empty(words, np.uint32) for _ in range(2))
        starts[-2:] = matches[-2:] = 0  # they may lie beyond the symbols

        def match(start: int, stop: int) -> list[NDArray[np.int64]]:
            found, parts = _NO_RUNS, []
            if runs is not None:
                rows = 2 * BLOCK + (stop - start) // _SYMBOLS_PER_RUN
                found = array_pool.empty(4 * rows, np.int64).reshape(rows, 4)
            while start < stop:
                start, count = match_range(
                    self.shape, *self.arrays, bases, offsets, start, stop, seeks, settles,
                    starts, matches, found, *block_arrays(),
                )  # fmt: skip
                if runs is not None and count:
                    parts.append(found[:count].copy())
            return parts

        for parts in run_ranges(match, 0, bases.size, threads, grain=_GRAIN, align=64):
            if runs is not None:
                runs += parts
        return starts, matches
