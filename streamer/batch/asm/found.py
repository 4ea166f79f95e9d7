"""Hits of a block, before they are attributed to records and patterns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trie.cpu.jit import njit

NO_LIMIT = 1 << 62

_SPARSE = 32  # with up to one hit per this many ends, hits are sorted; with more, ends are counted


class TooManyError(Exception):
    """More hits in a block than the limit: it must be cut."""


@dataclass(frozen=True, slots=True)
class EndsFound:
    """Hits of a block, by end, then by search.

    ends: int64, the number of block symbols before the end. distances, searches: int32.
    """

    ends: NDArray[np.int64]
    distances: NDArray[np.int32]
    searches: NDArray[np.int32]

    def __len__(self) -> int:
        return self.ends.size

    def at(self, places: NDArray[np.int64] | NDArray[np.bool_] | slice) -> EndsFound:
        """Return the hits at those places."""
        return EndsFound(self.ends[places], self.distances[places], self.searches[places])


def repeated(value: np.generic, size: int) -> NDArray[Any]:
    """Return one value as a read-only array (np.broadcast_to takes ten times as long)."""
    array: NDArray[Any] = np.ndarray((size,), value.dtype, np.array([value]), 0, (0,))
    array.flags.writeable = False
    return array


def joined(parts: Sequence[EndsFound]) -> EndsFound:
    """Concatenate parts."""
    if len(parts) == 1:
        return parts[0]
    return EndsFound(
        np.concatenate([np.empty(0, np.int64), *(part.ends for part in parts)]),
        np.concatenate([np.empty(0, np.int32), *(part.distances for part in parts)]),
        _joined_searches([part.searches for part in parts if len(part)]),
    )


def _joined_searches(parts: list[NDArray[np.int32]]) -> NDArray[np.int32]:
    """Join search numbers; one value for all hits if there is only one search."""
    if parts and all(part.strides == (0,) and part[0] == parts[0][0] for part in parts):
        return repeated(parts[0][0], sum(part.size for part in parts))
    return np.concatenate([np.empty(0, np.int32), *parts])


def in_order(found: EndsFound, low: int, high: int) -> EndsFound:
    """Sort hits that come search by search, with ends ascending and low < end <= high."""
    if len(found) == 0 or found.searches[0] == found.searches[-1]:
        return found
    if len(found) * _SPARSE < high - low:
        return found.at(np.argsort(found.ends, kind="stable"))
    return EndsFound(*_counted(found.ends, found.distances, found.searches, low, high))


@njit(cache=True, nogil=True)
def _counted(ends, distances, searches, low, high):
    """Counting sort by end, stable: count the hits of each end, then place every hit."""
    next_of = np.zeros(high - low + 1, np.int64)
    for i in range(ends.size):
        next_of[ends[i] - low] += 1
    total = 0
    for end in range(next_of.size):
        count = next_of[end]
        next_of[end] = total
        total += count
    new_ends = np.empty_like(ends)
    new_distances = np.empty_like(distances)
    new_searches = np.empty_like(searches)
    for i in range(ends.size):
        place = next_of[ends[i] - low]
        next_of[ends[i] - low] = place + 1
        new_ends[place] = ends[i]
        new_distances[place] = distances[i]
        new_searches[place] = searches[i]
    return new_ends, new_distances, new_searches


@njit(cache=True, nogil=True)
def merge_runs(ends, distances, searches, bounds):
    """Sort by end hits that come in runs, one per search, each sorted by end.

    bounds int64[runs + 1], ascending: run i is bounds[i] to bounds[i + 1]; overwritten. Neighbours
    are merged until one run is left, alternating between two buffers, without a branch on the
    comparison.
    """
    first, stop = bounds[0], bounds[-1]
    size = stop - first
    source = (ends[first:stop], distances[first:stop], searches[first:stop])
    target = (np.empty(size, np.int64), np.empty(size, np.int32), np.empty(size, np.int32))
    runs = bounds.size - 1
    bounds -= first
    swapped = False
    while runs > 1:
        for i in range(0, runs, 2):
            _merge_two(source, target, bounds[i], bounds[i + 1], bounds[min(i + 2, runs)])
            bounds[i // 2] = bounds[i]
        runs = (runs + 1) // 2
        bounds[runs] = size
        source, target = target, source
        swapped = not swapped
    if swapped:
        target[0][:] = source[0]
        target[1][:] = source[1]
        target[2][:] = source[2]


@njit(cache=True, nogil=True)
def _merge_two(source, target, left, right, stop):
    """Merge source[left:right] and source[right:stop] into target[left:stop], stably."""
    ends, distances, searches = source
    new_ends, new_distances, new_searches = target
    middle = right
    to = left
    while left < middle and right < stop:
        later = ends[right] < ends[left]
        place = right if later else left
        new_ends[to] = ends[place]
        new_distances[to] = distances[place]
        new_searches[to] = searches[place]
        right += later
        left += not later
        to += 1
    if left == middle:
        left, middle = right, stop
    for place in range(left, middle):
        new_ends[to] = ends[place]
        new_distances[to] = distances[place]
        new_searches[to] = searches[place]
        to += 1
