"""Runs of matching windows along the records of a dictionary, with their target sets.

    first window | one past the last | place of the first one's k-mer | step | target set

The places of the next windows ascend or descend by the step, 1 or -1. Runs ascend and hold each
window once if its k-mer is in a record. An index finds them in its text; from what other engines
find, the first place of each k-mer, they are made here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from streamer.dictionary.index import Index
from trie.cpu.intrinsics import prefetch_far
from trie.cpu.jit import inner, njit
from trie.cpu.threads import run_ranges
from trie.index.reference_text import block_near, row_behind
from trie.windows import NO_SET

Runs = NDArray[np.int64]

NO_RUNS: Runs = np.zeros((0, 5), dtype=np.int64)
_GRAIN = 1 << 20  # symbols worth another thread
_RUNS_GRAIN = 1 << 12  # runs worth another thread
_ROWS_PER_RUN = 4  # more take further steps
_FEW = 1 << 8  # rows that are searched without their table
_AHEAD = 16  # runs between the two prefetches of a row, and its use


def runs_in_text(index: Index, parts: Sequence[NDArray[np.int64]], threads: int = 1) -> Runs:
    """Add the target sets to the runs that the text of an index found, which are cut by them."""
    whole = parts[0] if len(parts) == 1 else np.concatenate([NO_RUNS[:, :4], *parts])
    if len(index.names) == 1:
        return np.column_stack((whole, np.zeros(len(whole), np.int64)))
    shares = index.shares
    near_shared = shares.near_shared
    if shares.shared[0].size <= _FEW:
        near_shared = near_shared[:0]  # these rows are in the cache, their table is not
    known = (
        index.starts, index.record_sets, shares.shared, near_shared, shares.repeats,
        shares.near_repeats, shares.steps, len(index.targets),
    )  # fmt: skip

    def cut_by_sets(first: int, stop: int) -> Runs:
        runs, done = whole[first:stop], np.zeros(2, np.int64)
        found, rows = [NO_RUNS], _ROWS_PER_RUN * len(runs)
        while done[0] < len(runs):
            cut = np.empty((rows, 5), np.int64)
            found.append(cut[: _with_sets(runs, *known, done, cut)])
            rows *= 2  # few runs of a genome have many rows
        return found[1] if len(found) == 2 else np.concatenate(found)

    found = run_ranges(cut_by_sets, 0, len(whole), threads, grain=_RUNS_GRAIN)
    return found[0] if len(found) == 1 else np.concatenate([NO_RUNS, *found])


def moved(runs: Runs, symbols: int) -> Runs:
    """Add ``symbols`` to the windows of runs, in place: two columns, not all five of each row."""
    runs[:, 0] += symbols
    runs[:, 1] += symbols
    return runs


def runs_of_places(
    index: Index, places: NDArray[np.uint32], offsets: NDArray[np.int64], threads: int
) -> Runs:
    """Find the runs among the first places of the k-mers of all windows, or NO_SET."""

    def found(first: int, stop: int) -> NDArray[np.int64]:
        rows = np.empty((_along(places, offsets, first, stop, NO_RUNS), 4), np.int64)
        _along(places, offsets, first, stop, rows)
        return rows

    threads = min(threads, 1 + places.size // _GRAIN)
    return runs_in_text(index, run_ranges(found, 0, offsets.size - 1, threads), threads)


@inner
def _row(begins, ends, near, place, step):
    """Which row [begin, end) has a place, or -1, and how many places from it on are alike."""
    at = row_behind(ends, near, place)
    if at < ends.size and np.int64(begins[at]) <= place:
        if step > 0:
            return at, np.int64(ends[at]) - place
        return at, place - np.int64(begins[at]) + 1
    if step > 0:
        return -1, (np.int64(begins[at]) if at < ends.size else np.int64(1 << 62)) - place
    return -1, place - (np.int64(ends[at - 1]) - 1 if at > 0 else np.int64(-1 << 62))


@njit(cache=True, nogil=True)
def _with_sets(
    runs, starts, record_sets, shared, near_shared, repeats, near_repeats, steps, sets, done, cut
):
    """Write the runs with their sets to ``cut``; returns the number of rows.

    The arrays before ``sets`` are of an index. sets: how many it has; a damaged file has others.
    done: int64[2], the runs, and of the next one the windows, that need not be written; updated.
    """
    count = 0
    most = np.int64(sets - 1)
    begins, ends, firsts = repeats
    shared_begins, shared_ends, numbers = shared
    for i in range(done[0], len(runs)):
        if numbers.size and i + 2 * _AHEAD < len(runs):
            prefetch_far(near_repeats, block_near(near_repeats, runs[i + 2 * _AHEAD, 2]))
            row = np.int64(near_repeats[block_near(near_repeats, runs[i + _AHEAD, 2])])
            prefetch_far(begins, row)
            prefetch_far(ends, row)
        begin, stop, place, step = runs[i, 0], runs[i, 1], runs[i, 2], runs[i, 3]
        record = max(np.searchsorted(starts, place, side="right") - 1, 0)
        own = np.int64(record_sets[record])
        last = np.int64(-1)
        begin += done[1]
        place += step * done[1]
        while begin < stop:
            current, size = own, stop - begin
            if numbers.size:
                # windows of a repeat have the set of their first one
                row, alike = _row(begins, ends, near_repeats, place, step)
                first, way = place, step
                if row >= 0:
                    first = np.int64(firsts[row]) + steps[row] * (place - np.int64(begins[row]))
                    way *= np.int64(steps[row])
                at, also = _row(shared_begins, shared_ends, near_shared, first, way)
                size = max(min(size, alike, also), 1)
                if at >= 0:
                    current = np.int64(numbers[at])
            if current != last:
                if count == len(cut):
                    done[0], done[1] = i, begin - runs[i, 0]
                    return count
                cut[count, 0], cut[count, 2] = begin, place
                cut[count, 3], cut[count, 4] = step, min(current, most)
                count += 1
                last = current
            begin += size
            place += step * size
            cut[count - 1, 1] = begin
        done[1] = 0
    done[0] = len(runs)
    return count


@njit(cache=True, nogil=True)
def _along(places, offsets, first, stop, rows):
    """Write the runs of the reads first..stop - 1 to ``rows``, unless empty; returns their number.

    places: uint32[symbols], NO_SET where there is none.
    """
    count = 0
    for read in range(first, stop):
        at, end = offsets[read], offsets[read + 1]
        while at < end:
            if places[at] == NO_SET:
                at += 1
                continue
            begin, place, step = at, np.int64(places[at]), np.int64(1)
            at += 1
            if at < end and np.int64(places[at]) == place - 1:
                step = np.int64(-1)
            while at < end and np.int64(places[at]) == place + step * (at - begin):
                at += 1
            if len(rows):
                rows[count, 0], rows[count, 1] = begin, at
                rows[count, 2], rows[count, 3] = place, step
            count += 1
    return count
