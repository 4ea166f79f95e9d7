"""Which windows of a text repeat an earlier one: bucket by bucket, without a list of k-mers.

All windows of equal k-mers have the same minimizer, so their places are in one bucket
(``trie.index.places``, which also finds those of the windows that are found by their k-mers). A
repeat is a row

    begin, end     the windows [begin, end), which lie in one record
    first          the first window of the text with the k-mer of window ``begin``
    step           1 if the next windows' first ones ascend, -1 if they descend (other strand)

so that the distinct k-mers of a text are its windows less those of repeats.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from trie.cpu.intrinsics import leading_zeros, prefetch_far, trailing_zeros
from trie.cpu.jit import inner, njit
from trie.cpu.machine import give_back
from trie.cpu.threads import run_each, run_ranges
from trie.index.mers import number_at, number_of, put_orders, reversed_pairs
from trie.index.places import (
    FIRST,
    FULL,
    MOST_AT_ONCE,
    SECOND,
    bucket_of,
    is_full,
    join_rows,
    key_of,
    list_kmers,
)
from trie.index.reference_text import (
    ReferenceText,
    fill_from_text,
    first_gap,
    first_gap_word,
    symbols_at,
)
from trie.index.text_index import TextIndex

_OFFSET: Final = np.uint32(FULL - 1)
_BEFORE: Final = 32  # symbols before a place whose m-mers matter
_NEAR: Final = 96
_NONE: Final = np.uint64(1 << 63)  # and more: the numbers of no m-mer
_ROWS: Final = 1 << 16
_FETCHED: Final = 64  # buckets whose places in the text are fetched together
_GRAIN: Final = 1 << 14
_SORTED: Final = 1 << 25  # symbols whose repeats are sorted together


def find_repeats(
    index: TextIndex,
    text: ReferenceText,
    threads: int,
    on_work: Callable[[float], None] = lambda done: None,
) -> tuple[NDArray[np.uint32], NDArray[np.int8]]:
    """The repeats of a text, ascending: uint32[3, n], begin, end and first, and int8[n], steps.

    They are sorted in parts of the text, which are given back as they are done, like ``repeats`` of
    the index. on_work: gets the share of the work that is done.
    """
    offsets, places, prints, full = index.arrays[4:]
    known = text.packed, text.blocks, text.gaps, index.shape, offsets, places, prints, full
    edges = [*range(0, text.size, _SORTED), text.size]
    sections: list[list[NDArray[np.uint32]]] = [[] for _ in edges[1:]]

    def put(rows: NDArray[np.uint32], *, copied: bool) -> None:
        bounds = np.searchsorted(rows[:, 0], edges).tolist()
        for some, first, stop in zip(sections, bounds, bounds[1:], strict=False):
            if first < stop:
                some.append(rows[first:stop].copy() if copied else rows[first:stop])

    def of_buckets(begin: int, end: int) -> None:
        while begin < end:
            rows = np.empty((_ROWS, 4), np.int64)
            begin, count = _in_buckets(*known, begin, end, rows)
            rows = rows[np.argsort(rows[:count, 0])]
            rows[:, 3] += 1
            put(rows.astype(np.uint32), copied=True)
        on_work(end / offsets.size)

    size = offsets.size - 1
    run_ranges(of_buckets, 0, size, threads, grain=_GRAIN, most=MOST_AT_ONCE)
    for rows in index.repeats or list_kmers(text, index.shape, offsets, full, threads)[1]:
        put(rows, copied=False)
    index.repeats = None
    return _sorted(sections, threads)


def _sorted(
    sections: list[list[NDArray[np.uint32]]], threads: int
) -> tuple[NDArray[np.uint32], NDArray[np.int8]]:
    """The repeats of parts of the text, in order; the parts are emptied."""

    def joined(some: list[NDArray[np.uint32]]) -> NDArray[np.uint32]:
        rows = np.concatenate([np.empty((0, 4), np.uint32), *some]).astype(np.int64)
        some.clear()
        rows = rows[np.argsort(rows[:, 0])]
        rows[:, 3] -= 1
        return join_rows(rows)

    parts = run_each(joined, [(some,) for some in sections], threads)
    bounds = np.cumsum([0, *map(len, parts)]).tolist()
    columns, steps = np.empty((3, bounds[-1]), np.uint32), np.empty(bounds[-1], np.int8)

    def place(part: int, first: int, stop: int) -> None:
        rows, parts[part] = parts[part], parts[part][:0].copy()
        columns[:, first:stop] = rows[:, :3].T
        steps[first:stop] = rows[:, 3].astype(np.int8) - np.int8(1)

    run_each(place, zip(range(len(parts)), bounds, bounds[1:], strict=False), threads)
    give_back()
    return columns, steps


@inner
def _around(text, place, length, turned):
    """The 32 symbols from an m-mer's first one on, and those before it, as its number has them."""
    if turned:
        ahead = reversed_pairs(~symbols_at(text, place + length - 32))
        return ahead, reversed_pairs(~symbols_at(text, place + length))
    return symbols_at(text, place), symbols_at(text, place - 32)


@inner
def _alike_windows(ahead, behind, other_ahead, other_behind, k, length):
    """The least and the most symbols before an m-mer in windows that are equal for two of them."""
    after = np.int64(trailing_zeros(ahead ^ other_ahead)) >> 1
    before = np.int64(leading_zeros(behind ^ other_behind)) >> 1
    return max(k - after, 0), min(k - length, before)


@inner
def _least(orders, at, width):
    """The first of the least orders of a window."""
    best = at
    for i in range(at + 1, at + width):
        if orders[i] < orders[best]:
            best = i
    return best


@inner
def _windows_of(orders, at, width):
    """The first and last of the windows whose first least order is that at ``at``."""
    first, last = at - width + 1, at
    for i in range(at - 1, at - width, -1):
        if orders[i] <= orders[at]:
            first = i + 1
            break
    for i in range(at + 1, at + width):
        if orders[i] < orders[at]:
            last = i - width
            break
    return first, last


@inner
def _is_left(sixteens, orders, mers, offsets, full, at, canonical):
    """Whether a window is not found on the first level."""
    best = _least(orders, at, mers.width)
    for i in range(best, at + mers.width):
        if orders[i] == orders[best]:
            key = key_of(number_at(sixteens, i, mers.length, canonical)[0])
            if is_full(full, bucket_of(key, offsets), FIRST):
                return True
    return False


@inner
def _has_alike(prints, low, total, alike):
    """Note which places of a bucket share their fingerprint with another; whether any do."""
    some = False
    for i in range(total):
        alike[i] = False
        for j in range(i):
            if prints[low + i] == prints[low + j]:
                alike[i] = alike[j] = some = True
    return some


@njit(cache=True, nogil=True)
def _in_buckets(text, blocks, gaps, shape, offsets, places, prints, full, begin, end, rows):
    """Write the repeats found in buckets [begin, end): (where it stopped, their number)."""
    k, mers, longer = shape.k, shape.mers, shape.longer
    canonical = shape.text.both > shape.text.size
    sixteens = np.empty(_NEAR + 32, dtype=np.uint32)
    orders = np.empty(_NEAR, dtype=np.uint32)
    others = np.empty(_NEAR, dtype=np.uint32)
    most = 1
    for bucket in range(begin, end):
        total = np.int64(offsets[bucket + 1] & _OFFSET) - np.int64(offsets[bucket] & _OFFSET)
        most = max(most, total)
    numbers = np.empty(most, dtype=np.uint64)
    alike, turned = np.empty(most, dtype=np.bool_), np.empty(most, dtype=np.bool_)
    aheads, behinds = np.empty(most, dtype=np.uint64), np.empty(most, dtype=np.uint64)
    lefts, rights = np.empty(most, dtype=np.int64), np.empty(most, dtype=np.int64)
    wanted = np.empty(_FETCHED, dtype=np.int64)
    bests, ways = np.empty(32, dtype=np.int64), np.empty(32, dtype=np.int64)
    count = 0
    while begin < end:
        stop = min(begin + _FETCHED, end)
        some = 0
        for bucket in range(begin, stop):
            low = np.int64(offsets[bucket] & _OFFSET)
            total = np.int64(offsets[bucket + 1] & _OFFSET) - low
            if _has_alike(prints, low, total, alike):
                wanted[some] = bucket
                some += 1
                for i in range(total):
                    if alike[i]:
                        place = np.int64(places[low + i])
                        prefetch_far(text, (place - _BEFORE) >> 2)
                        prefetch_far(blocks, first_gap_word(shape.text, max(place - k, 0)))
        for bucket in wanted[:some]:
            low = np.int64(offsets[bucket] & _OFFSET)
            total = np.int64(offsets[bucket + 1] & _OFFSET) - low
            if count + 64 * total > len(rows):
                return bucket, count
            _has_alike(prints, low, total, alike)
            for level in (FIRST, SECOND):
                length, width = mers.length, mers.width
                if level == SECOND:
                    length, width = longer.length, longer.width
                if width == 0 or is_full(full, bucket, level):
                    continue
                for i in range(total):
                    numbers[i] = _NONE + np.uint64(i)
                    lefts[i] = -1
                    if alike[i]:
                        place = np.int64(places[low + i])
                        numbers[i], turned[i] = number_of(
                            symbols_at(text, place), length, canonical
                        )
                        aheads[i], behinds[i] = _around(text, place, length, turned[i])
                for i in range(total):
                    # the place may be one of another level
                    if (
                        not alike[i]
                        or (i > 0 and places[low + i - 1] == places[low + i])
                        or np.int64(bucket_of(key_of(numbers[i]), offsets)) != bucket
                    ):
                        continue
                    place = np.int64(places[low + i])
                    lowest = place + length - k  # the first window that holds the m-mer
                    origin = (place - _BEFORE) & ~3
                    first, last = np.int64(0), np.int64(-1)
                    for j in range(total):
                        there = np.int64(places[low + j])
                        # a window of a place beyond has no earlier one
                        if there >= place + 2 * k:
                            break
                        if there == place or numbers[j] != numbers[i]:
                            continue
                        least, most = _alike_windows(
                            aheads[i], behinds[i], aheads[j], behinds[j], k, length
                        )
                        if least > most:
                            continue
                        if first > last:
                            fill_from_text(text, origin, _NEAR, sixteens)
                            own = place - origin
                            for at in range(own - width + 1, own + mers.width, 16):
                                put_orders(sixteens, at, mers, orders, at)
                                if level == SECOND:
                                    put_orders(sixteens, at, longer, others, at)
                            first, last = _windows_of(
                                others if level == SECOND else orders, own, width
                            )
                            _bound(blocks, gaps, shape.text, k, places, low, i, lefts, rights)
                            first = max(lefts[i], origin + first)
                            last = min(rights[i] - k, origin + last)
                            if first > last:
                                break
                            for window in range(first, last + 1):
                                bests[window - lowest] = window
                        _bound(blocks, gaps, shape.text, k, places, low, j, lefts, rights)
                        opposite = turned[j] != turned[i]
                        begin_at = lowest + least if turned[i] else place - most
                        for window in range(
                            max(first, begin_at), min(last, begin_at + most - least) + 1
                        ):
                            at = there + window - place
                            if opposite:
                                at = there + length + place - window - k
                            if (
                                at < bests[window - lowest]
                                and lefts[j] <= at
                                and at + k <= rights[j]
                            ):
                                bests[window - lowest] = at
                                ways[window - lowest] = -1 if opposite else 1
                    for window in range(first, last + 1):
                        best, step = bests[window - lowest], ways[window - lowest]
                        if best == window or (
                            level == SECOND
                            and not _is_left(
                                sixteens, orders, mers, offsets, full, window - origin, canonical
                            )
                        ):
                            continue
                        if (
                            count
                            and rows[count - 1, 1] == window
                            and rows[count - 1, 3] == step
                            and rows[count - 1, 2] + step * (window - rows[count - 1, 0]) == best
                        ):
                            rows[count - 1, 1] = window + 1
                        else:
                            rows[count, 0], rows[count, 1] = window, window + 1
                            rows[count, 2], rows[count, 3] = best, step
                            count += 1
        begin = stop
    return end, count


@inner
def _bound(blocks, gaps, shape, k, places, low, i, lefts, rights):
    """Where the last gap before place i of a bucket ends and the next begins, if not known."""
    if lefts[i] >= 0:
        return
    place = np.int64(places[low + i])
    left, right = np.int64(0), shape.size
    at = first_gap(blocks, shape, max(place - k, 0))
    while at < gaps.size:
        if np.int64(gaps[at]) > place:
            right = np.int64(gaps[at])
            break
        left = np.int64(gaps[at + 1])
        at += 2
    lefts[i], rights[i] = left, right
