"""Which windows of a text repeat an earlier one: bucket by bucket, without a list of k-mers.

All windows of equal k-mers have the same minimizer, so their places are in one bucket
(``trie.index.places``); those that are found by their k-mers are looked up. A repeat is a row

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

from trie.cpu.intrinsics import prefetch_far
from trie.cpu.jit import inner, njit
from trie.cpu.machine import give_back
from trie.cpu.threads import run_ranges
from trie.index.mers import number_at, number_of, put_orders, reversed_pairs
from trie.index.places import (
    FIRST,
    FULL,
    LISTED,
    MOST_AT_ONCE,
    SECOND,
    bucket_of,
    is_full,
    key_of,
    listed_kmers,
    print_of,
)
from trie.index.reference_text import PAD, ReferenceText, fill_from_text, first_gap, symbols_at
from trie.index.text_index import TextIndex

_OFFSET: Final = np.uint32(FULL - 1)
_BEFORE: Final = 32  # symbols before a place whose m-mers matter
_NEAR: Final = 128
_NONE: Final = np.uint64(1 << 63)  # and more: the numbers of no m-mer
_ROWS: Final = 1 << 16
_ASKED: Final = 64  # k-mers whose buckets are fetched together
_GRAIN: Final = 1 << 14
_SORTED: Final = 1 << 25  # symbols whose repeats are sorted together


def find_repeats(
    index: TextIndex,
    text: ReferenceText,
    threads: int,
    on_work: Callable[[float], None] = lambda done: None,
) -> tuple[NDArray[np.uint32], NDArray[np.int8]]:
    """The repeats of a text, ascending: uint32[3, n], begin, end and first, and int8[n], steps.

    They are sorted in parts of the text, which are given back as they are done: 30 bytes a repeat
    are enough. on_work: gets the share of the work that is done.
    """
    offsets, places, prints, full = index.arrays[4:]
    known = text.packed, text.blocks, text.gaps, index.shape, offsets, places, prints, full
    edges = [*range(0, text.size, _SORTED), text.size]
    sections: list[list[NDArray[np.uint32]]] = [[] for _ in edges[1:]]

    def put(rows: NDArray[np.uint32]) -> None:
        bounds = np.searchsorted(rows[:, 0], edges).tolist()
        for some, first, stop in zip(sections, bounds, bounds[1:], strict=False):
            if first < stop:
                some.append(rows[first:stop].copy())

    def of_buckets(begin: int, end: int) -> None:
        while begin < end:
            rows = np.empty((_ROWS, 4), np.int64)
            begin, count = _in_buckets(*known, begin, end, rows)
            put(_ascending(rows[:count]))
        on_work(end / (2 * offsets.size))

    def of_kmers(begin: int, end: int) -> None:
        codes, windows = listed_kmers(text, index.shape, offsets, full, begin, end)
        rows = np.empty((windows.size, 4), np.int64)
        rows = rows[: _of_kmers(*known, codes, windows, rows)]
        put(_ascending(rows[: _join(rows)]))
        on_work(0.5 + end / (2 * text.size))

    size = offsets.size - 1
    run_ranges(of_buckets, 0, size, threads, grain=_GRAIN, most=MOST_AT_ONCE)
    if full.any() or not index.shape.mers.width:
        size = text.size - PAD
        run_ranges(of_kmers, PAD, size, threads, grain=_GRAIN, align=4, most=LISTED)
    return _sorted(sections)


def _sorted(
    sections: list[list[NDArray[np.uint32]]],
) -> tuple[NDArray[np.uint32], NDArray[np.int8]]:
    """The repeats of parts of the text, in order; the parts are emptied."""
    most = sum(len(rows) for some in sections for rows in some)
    columns, steps, count = np.empty(3 * most, np.uint32), np.empty(most, np.int8), 0
    for some in sections:
        rows = np.concatenate([np.empty((0, 4), np.uint32), *some]).astype(np.int64)
        some.clear()
        rows = rows[np.argsort(rows[:, 0], kind="stable")]
        rows[:, 3] -= 1
        rows = rows[: _join(rows)]
        stop = count + len(rows)
        for column in range(3):
            columns[column * most + count : column * most + stop] = rows[:, column]
        steps[count:stop] = rows[:, 3]
        count = stop
        give_back()
    for column in (1, 2):
        for at in range(0, count, _ROWS):  # they may overlap
            stop = min(at + _ROWS, count)
            columns[column * count + at : column * count + stop] = columns[
                column * most + at : column * most + stop
            ].copy()
    columns.resize(3 * count, refcheck=False)
    steps.resize(count, refcheck=False)
    return columns.reshape(3, count), steps


def _ascending(rows: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Rows in ascending order, their steps greater by one."""
    rows = rows[np.argsort(rows[:, 0])]
    rows[:, 3] += 1
    return rows.astype(np.uint32)


@njit(cache=True, nogil=True)
def _join(rows):
    """Make rows that continue others part of them; the number left."""
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
    return count


@inner
def _equal(text, k, one, other, turned):
    """Whether two windows have equal k-mers, ``turned``: on different strands."""
    spare = np.uint64(64 - 2 * k)
    here, there = symbols_at(text, one) << spare, symbols_at(text, other)
    return here >> spare == reversed_pairs(~there << spare) if turned else here == there << spare


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
    lefts, rights = np.empty(most, dtype=np.int64), np.empty(most, dtype=np.int64)
    count = 0
    for bucket in range(begin, end):
        low = np.int64(offsets[bucket] & _OFFSET)
        total = np.int64(offsets[bucket + 1] & _OFFSET) - low
        if count + 64 * total > len(rows):
            return bucket, count
        if not _has_alike(prints, low, total, alike):
            continue
        for level in (FIRST, SECOND):
            length, width = mers.length, mers.width
            if level == SECOND:
                length, width = longer.length, longer.width
            if width == 0 or is_full(full, bucket, level):
                continue
            for i in range(total):
                if alike[i]:
                    numbers[i], turned[i] = number_of(
                        symbols_at(text, np.int64(places[low + i])), length, canonical
                    )
                else:
                    numbers[i] = _NONE + np.uint64(i)
                lefts[i] = -1
            for i in range(total):
                if not alike[i]:
                    continue
                place = np.int64(places[low + i])
                shared = False
                for j in range(total):
                    # a window of a place beyond has no earlier one
                    shared |= (
                        j != i
                        and numbers[j] == numbers[i]
                        and np.int64(places[low + j]) < place + 2 * k
                    )
                shared &= i == 0 or places[low + i - 1] != places[low + i]
                # the place may be one of another level
                shared &= np.int64(bucket_of(key_of(numbers[i]), offsets)) == bucket
                if not shared:
                    continue
                origin = (place - _BEFORE) & ~3
                own = place - origin
                fill_from_text(text, origin, _NEAR, sixteens)
                for at in range(0, 80, 16):
                    put_orders(sixteens, at, mers, orders, at)
                    if level == SECOND:
                        put_orders(sixteens, at, longer, others, at)
                first, last = _windows_of(others if level == SECOND else orders, own, width)
                for j in range(total):
                    if numbers[j] == numbers[i]:
                        _bound(blocks, gaps, shape.text, k, places, low, j, lefts, rights)
                for window in range(
                    max(lefts[i], origin + first), min(rights[i] - k, origin + last) + 1
                ):
                    if level == SECOND and not _is_left(
                        sixteens, orders, mers, offsets, full, window - origin, canonical
                    ):
                        continue
                    best, step = window, 1
                    for j in range(total):
                        if j == i or numbers[j] != numbers[i]:
                            continue
                        there = np.int64(places[low + j])
                        if there == place:
                            continue
                        opposite = turned[j] != turned[i]
                        there += window - place if not opposite else length + place - window - k
                        if (
                            there < best
                            and lefts[j] <= there
                            and there + k <= rights[j]
                            and _equal(text, k, window, there, opposite)
                        ):
                            best, step = there, -1 if opposite else 1
                    if best < window:
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


@njit(cache=True, nogil=True)
def _of_kmers(
    text, blocks, gaps, shape, offsets, places, prints, full, numbers, windows, rows
):  # fmt: skip
    """Write the repeats among windows that are found by their k-mers; their number."""
    k = shape.k
    canonical = shape.text.both > shape.text.size
    keys = np.empty(_ASKED, dtype=np.uint64)
    count = 0
    for begin in range(0, windows.size, _ASKED):
        end = min(begin + _ASKED, windows.size)
        for i in range(begin, end):
            keys[i - begin] = key_of(numbers[i])
            prefetch_far(offsets, bucket_of(keys[i - begin], offsets))
        for i in range(begin, end):
            low = offsets[bucket_of(keys[i - begin], offsets)] & _OFFSET
            prefetch_far(prints, low)
            prefetch_far(places, low)
        for i in range(begin, end):
            key = keys[i - begin]
            bucket = np.int64(bucket_of(key, offsets))
            for slot in range(offsets[bucket] & _OFFSET, offsets[bucket + 1] & _OFFSET):
                place = np.int64(places[slot])
                if prints[slot] != print_of(key) or place > windows[i]:
                    continue
                number, turned = number_of(symbols_at(text, place), k, canonical)
                if number != numbers[i] or not _inside(blocks, gaps, shape.text, place, k):
                    continue
                if place < windows[i]:
                    step = 1
                    if turned != number_of(symbols_at(text, windows[i]), k, canonical)[1]:
                        step = -1
                    rows[count, 0], rows[count, 1] = windows[i], windows[i] + 1
                    rows[count, 2], rows[count, 3] = place, step
                    count += 1
                break
    return count


@inner
def _inside(blocks, gaps, shape, place, k):
    """Whether the window at a place holds no gap code."""
    at = first_gap(blocks, shape, place)
    while at < gaps.size and np.int64(gaps[at + 1]) <= place:
        at += 2
    return at >= gaps.size or np.int64(gaps[at]) >= place + k
