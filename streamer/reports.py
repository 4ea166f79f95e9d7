"""The three reports of exact matching and those of approximate matching, as columns.

Each function takes a BatchResult or an ApproximateResult and gives a dict of equally long arrays.
Reads and targets are indices here; ``streamer.output`` puts in their names.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from streamer.matching.approximate.result import ApproximateResult
from streamer.matching.result import MATCH, MISMATCH, NONE, BatchResult
from streamer.targets import TargetSets

Columns = dict[str, NDArray]  # type: ignore[type-arg]

# the columns of each report, in order
WINDOW_COLUMNS = ("read", "start", "event", "depth", "target")
INTERVAL_COLUMNS = ("read", "start", "end", "event", "windows", "target")
NEAR_COLUMNS = ("read", "start", "end", "distance", "strand", "kmer", "target")
LTB_COLUMNS = ("read", "end", "distances", "depths")
READ_COLUMNS = ("read", "length", "windows", "matches", "mismatches", "skipped", "best_target")

_NO_SETS = np.zeros(0, dtype=np.uint32)


def windows(result: BatchResult) -> Columns:
    """One row a window that holds no gap code; the batch was matched with ``want_depths``.

    read int64 (index), start int64, event uint8, depth uint8, target uint32 (target set).
    """
    if result.depths is None:
        message = "the windows report needs want_depths"
        raise ValueError(message)
    at = np.flatnonzero(result.events)
    read = np.searchsorted(result.batch.offsets, at, side="right") - 1
    events = result.events[at]
    if result.sets is None:
        target = np.where(events == MATCH, result.only_set, ~np.uint32(0)).astype(np.uint32)
    else:
        target = result.sets[at]
    return {
        "read": read,
        "start": at - result.batch.offsets[read],
        "event": events,
        "depth": result.depths.depths[at],
        "target": target,
    }


def intervals(result: BatchResult) -> Columns:
    """One row a maximal run of windows at consecutive starts with the same event and target set.

    read int64 (index), start int64, end int64 (of the last window), event uint8, windows int64,
    target uint32 (target set).
    """
    sets = _NO_SETS if result.sets is None else result.sets
    arguments = (result.events, result.batch.offsets, result.k, sets, result.only_set)
    count = _intervals(*arguments, *(np.zeros(0, t) for t in _INTERVAL_TYPES))
    columns = [np.empty(count, t) for t in _INTERVAL_TYPES]
    _intervals(*arguments, *columns)
    read, start, end, event, target = columns
    return {
        "read": read,
        "start": start,
        "end": end,
        "event": event,
        "windows": end - start - (result.k - 1),
        "target": target,
    }


def reads(result: BatchResult, targets: TargetSets) -> Columns:
    """One row a read, reads shorter than k too.

    read int64 (index), length, windows, matches, mismatches, skipped (all int64; skipped windows
    hold a gap code), best_target int32 (the target with the most matching windows, the first of
    equals; -1 if none).
    """
    sets = _NO_SETS if result.sets is None else result.sets
    count = len(result.batch)
    matches = np.zeros(count, dtype=np.int64)
    mismatches = np.zeros(count, dtype=np.int64)
    best = np.full(count, -1, dtype=np.int32)
    _count_reads(
        result.events,
        result.batch.offsets,
        sets,
        result.only_set,
        targets.starts,
        targets.members,
        np.zeros(len(targets.names), dtype=np.int64),
        matches,
        mismatches,
        best,
    )
    lengths = result.batch.lengths
    counted = matches + mismatches
    return {
        "read": np.arange(count),
        "length": lengths,
        "windows": counted,
        "matches": matches,
        "mismatches": mismatches,
        "skipped": np.maximum(lengths - result.k + 1, 0) - counted,
        "best_target": best,
    }


def near(result: ApproximateResult, *, best: bool = False) -> Columns:
    """One row an end with a k-mer within the distance, or with ``best`` a row a cluster of ends.

    read int64 (index), start int64, end int64, distance uint8, strand uint8 (0 is ``+``), kmer
    uint64 (code, as stored), target uint32 (target set).
    """
    rows = result.best() if best else slice(None)
    return {
        "read": result.read[rows],
        "start": result.start[rows],
        "end": result.end[rows],
        "distance": result.distance[rows],
        "strand": result.strand[rows],
        "kmer": result.code[rows],
        "target": result.target[rows],
    }


def ltb(result: ApproximateResult) -> Columns:
    """One row an end with a match or a mismatch word (thesis Fig. 31).

    read int64 (index), end int64, distances uint32 (bit e: a k-mer at distance e), depths uint32
    (bit h + 1: a state of depth h at level 0 without a transition).
    """
    return {
        "read": result.read,
        "end": result.end,
        "distances": result.matches,
        "depths": result.mismatches,
    }


_INTERVAL_TYPES = (np.int64, np.int64, np.int64, np.uint8, np.uint32)


@njit(cache=True, nogil=True)
def _intervals(events, offsets, k, sets, only_set, read_, start_, end_, event_, target_):  # type: ignore[no-untyped-def]
    """Count the runs, and write them down where the columns have room (a first call has none)."""
    write = read_.size > 0
    none = np.uint32(0xFFFFFFFF)
    count = 0
    for read in range(offsets.size - 1):
        begin = offsets[read]
        last = offsets[read + 1] - k
        running = np.uint8(NONE)
        held = none
        for i in range(begin, last + 1):
            event = events[i]
            target = none
            if event == MATCH:
                target = sets[i] if sets.size else only_set
            if event == running and (event == NONE or target == held):
                continue
            if running != NONE and write:
                end_[count - 1] = i - 1 - begin + k
            running = event
            held = target
            if event != NONE:
                if write:
                    read_[count] = read
                    start_[count] = i - begin
                    event_[count] = event
                    target_[count] = target
                count += 1
        if running != NONE and write:
            end_[count - 1] = last - begin + k
    return count


@njit(cache=True, nogil=True)
def _count_reads(  # type: ignore[no-untyped-def]
    events, offsets, sets, only_set, set_starts, set_members, tally, matches, mismatches, best
):
    none = np.uint32(0xFFFFFFFF)
    for read in range(offsets.size - 1):
        start, stop = offsets[read], offsets[read + 1]
        hits = 0
        misses = 0
        for i in range(start, stop):
            hits += events[i] == MATCH
            misses += events[i] == MISMATCH
        matches[read] = hits
        mismatches[read] = misses
        if hits == 0 or tally.size == 0:
            continue
        if sets.size == 0:
            if only_set != none:
                best[read] = set_members[set_starts[only_set]]
            continue
        for i in range(start, stop):
            if sets[i] != none:
                for j in range(set_starts[sets[i]], set_starts[sets[i] + 1]):
                    tally[set_members[j]] += 1
        chosen = -1
        # only what this read touched is looked at and put back to zero
        for i in range(start, stop):
            if sets[i] != none:
                for j in range(set_starts[sets[i]], set_starts[sets[i] + 1]):
                    target = set_members[j]
                    if tally[target] > 0 and (
                        chosen < 0
                        or tally[target] > tally[chosen]
                        or (tally[target] == tally[chosen] and target < chosen)
                    ):
                        chosen = target
        for i in range(start, stop):
            if sets[i] != none:
                for j in range(set_starts[sets[i]], set_starts[sets[i] + 1]):
                    tally[set_members[j]] = 0
        best[read] = chosen
