"""The kernels behind the reports: windows counted and put together, a read at a time.

Events are bytes (0 none, 1 match, 2 mismatch), looked at eight at a time: a count is the number of
bits of a word, and in a run of equal events a word differs from the pattern of the run in nothing.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from trie.intrinsics import popcount, trailing_zeros, word_at

NO_SET = np.uint32(0xFFFFFFFF)
_ONES = np.uint64(0x0101010101010101)


@njit(cache=True, nogil=True)
def count_events(events, offsets, first, stop, matches, mismatches):  # type: ignore[no-untyped-def]
    """Count the matches and the mismatches of the reads first..stop - 1."""
    for read in range(first, stop):
        at, end = offsets[read], offsets[read + 1]
        hits = np.int64(0)
        misses = np.int64(0)
        for i in range((end - at) // 8):
            word: np.uint64 = word_at(events, at + 8 * i)  # type: ignore[call-arg]
            hits += np.int64(popcount(word & _ONES))
            misses += np.int64(popcount((word >> np.uint64(1)) & _ONES))
        for i in range(end - (end - at) % 8, end):
            hits += events[i] == 1
            misses += events[i] == 2
        matches[read] = hits
        mismatches[read] = misses


@njit(cache=True, nogil=True)
def runs(  # type: ignore[no-untyped-def]
    events, offsets, k, sets, only_set, first, stop, read_, start_, end_, event_, target_
):
    """Count the maximal runs of the reads first..stop - 1, and write them down if there is room.

    A run is windows at consecutive starts with one event and, where they match, one target set
    (``sets``, or ``only_set`` for all if that is empty). A first call has columns without room.
    """
    write = read_.size > 0
    many = sets.size > 0
    count = 0
    for read in range(first, stop):
        begin = offsets[read]
        last = offsets[read + 1] - k  # where the last window starts
        at = begin
        while at <= last:
            event = events[at]
            held = NO_SET
            if event == 1:
                held = sets[at] if many else only_set
            start = at
            at += 1
            if many and event == 1:
                while at <= last and events[at] == 1 and sets[at] == held:
                    at += 1
            else:
                pattern = np.uint64(event) * _ONES
                while at + 8 <= last + 1:
                    unlike = word_at(events, at) ^ pattern  # type: ignore[call-arg]
                    if unlike:
                        at += np.int64(trailing_zeros(unlike)) >> 3
                        break
                    at += 8
                while at <= last and events[at] == event:
                    at += 1
            if event != 0:
                if write:
                    read_[count] = read
                    start_[count] = start - begin
                    end_[count] = at - 1 - begin + k
                    event_[count] = event
                    target_[count] = held
                count += 1
    return count


@njit(cache=True, nogil=True)
def _holds(members, start, stop, target):  # type: ignore[no-untyped-def]
    """Whether ascending members[start:stop] hold a target."""
    low, high = start, stop
    while low < high:
        middle = (low + high) >> 1
        if members[middle] < target:
            low = middle + 1
        else:
            high = middle
    return low < stop and members[low] == target


@njit(cache=True, nogil=True)
def best_targets(sets, offsets, set_starts, members, targets, best):  # type: ignore[no-untyped-def]
    """The target with the most windows of every read, the first of equals; -1 if there is none.

    Windows are counted by set, then the members of all sets but the largest are looked at: a
    k-mer that a million records share costs a look-up each for the others, not a million steps.
    """
    counts = np.zeros(set_starts.size - 1, dtype=np.int64)
    touched = np.empty(set_starts.size - 1, dtype=np.int64)
    tally = np.zeros(targets, dtype=np.int64)
    for read in range(offsets.size - 1):
        number = 0
        largest = np.int64(0)
        size = np.int64(-1)
        for i in range(offsets[read], offsets[read + 1]):
            held = np.int64(sets[i])
            if sets[i] == NO_SET:
                continue
            if counts[held] == 0:
                touched[number] = held
                number += 1
                members_held = set_starts[held + 1] - set_starts[held]
                if members_held > size:
                    size = members_held
                    largest = held
            counts[held] += 1
        if number == 0:
            best[read] = -1
            continue
        start, stop = set_starts[largest], set_starts[largest + 1]
        chosen = members[start]
        most = counts[largest]
        for i in range(number):
            held = touched[i]
            if held != largest:
                for j in range(set_starts[held], set_starts[held + 1]):
                    tally[members[j]] += counts[held]
        for i in range(number):
            held = touched[i]
            if held != largest:
                for j in range(set_starts[held], set_starts[held + 1]):
                    target = members[j]
                    windows = tally[target]
                    if windows == 0:
                        continue  # seen in another set
                    tally[target] = 0
                    if _holds(members, start, stop, target):
                        windows += counts[largest]
                    if windows > most or (windows == most and target < chosen):
                        most = windows
                        chosen = target
        for i in range(number):
            counts[touched[i]] = 0
        best[read] = chosen
