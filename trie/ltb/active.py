"""The Levenshtein Tree Bitmap on the CPU as in the thesis (3.3.16-3.3.17), over active nodes.

Every trie-node v has D + 1 active bitmaps, one per dist-level, side by side:

    active  uint32[N, D + 1]   active[v, d]: the states of v at dist-level d, laid out as an inmap
    listed  uint32[N]          the nodes of each level that have a state, from the level's offset on

On each symbol the levels are visited deepest first, as in the thesis, but in each level only the
listed nodes, where the thesis scans all. A node's new bitmaps are

    active'[d] = inmap & (K(active[d]) | S(active[d - 1])) | active[d - 1]                (K, S, I)

and the same masks over the exmap wake its children, whose level is already done.

Cost: each symbol takes about 25 D + 40 operations for each trie-node that has a state, and nothing
for the others. Memory: 4 (D + 2) N bytes per thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trie.cpu.intrinsics import popcount, trailing_zeros
from trie.cpu.jit import njit
from trie.ltb.transitions import steps

_MOST_VISITS = 1 << 20
"""Of trie-nodes in a call of a kernel, about: Ctrl-C is noticed only between two."""

_inline: Any = njit(inline="always")
_K_STEP, _INMAP, _EXMAP, _DISTANCES, _MISSING = steps(_inline)


@njit(cache=True, nogil=True)
def _forget(active, listed, counts, level_offsets):
    """Clear all states but the initial one."""
    for level in range(counts.size):
        first = level_offsets[level]
        for i in range(counts[level]):
            active[listed[first + np.uint64(i)]] = 0
        counts[level] = 0
    active[0, 0] = 1
    listed[0] = 0
    counts[0] = 1


@njit(cache=True, nogil=True)
def _wake(active, listed, counts, below, first, prefix_sum, exmap, masks):
    """Set the root bit of the children in ``masks`` (uint64[D + 1]); list the newly woken."""
    levels = masks.size
    union = np.uint64(0)
    for d in range(levels):
        union |= masks[d]
    while union:
        group = trailing_zeros(union)
        lower = exmap & ((np.uint64(1) << group) - np.uint64(1))
        child = np.uint64(prefix_sum) + popcount(lower)
        row = active[child]
        asleep = np.uint32(0)
        for d in range(levels):
            asleep |= row[d]
            row[d] |= np.uint32((masks[d] >> group) & np.uint64(1))
        if asleep == 0:
            listed[first + np.uint64(counts[below])] = np.uint32(child)
            counts[below] += 1
        union &= union - np.uint64(1)


def active_steps(
    inmaps: NDArray[np.uint32], exmaps: NDArray[np.uint64], prefix_sums: NDArray[np.uint32],
    level_offsets: NDArray[np.uint64], k: int, distance: int, bases: NDArray[np.uint8],
    offsets: NDArray[np.int64], read: int, warm: int, start: int, stop: int,
    matches: NDArray[np.uint32], mismatches: NDArray[np.uint32],
) -> Iterator[Callable[[], None]]:  # fmt: skip
    """Fill in the bitmaps of the symbols [start, stop), from the initial state at ``warm``.

    Yields the steps to do so, each a call of a kernel.
    """
    active = np.zeros((inmaps.size, distance + 1), dtype=np.uint32)
    listed = np.empty(inmaps.size, dtype=np.uint32)
    counts = np.zeros(k // 3 + 1, dtype=np.int64)
    listed[0] = 0
    counts[0] = 1
    at = warm

    def step() -> None:
        nonlocal read, at
        read, at = _run(
            inmaps, exmaps, prefix_sums, level_offsets, k, bases, offsets, read, at, start, stop,
            active, listed, counts, _MOST_VISITS, matches, mismatches,
        )  # fmt: skip

    while at < stop:
        yield step


@njit(cache=True, nogil=True)
def _run(
    inmaps, exmaps, prefix_sums, level_offsets, k, bases, offsets, read, first_at, start, stop,
    active, listed, counts, most, matches, mismatches,
):  # fmt: skip
    """Take the symbols from ``first_at`` on; return the read and symbol to go on with.

    most: visits of trie-nodes after which it returns.
    """
    levels = active.shape[1]
    distance = levels - 1
    last = k // 3
    masks = np.empty(levels, dtype=np.uint64)
    bound = np.uint32(distance)
    length = np.uint32(k)
    visits = 0
    for at in range(first_at, stop):
        if visits >= most:
            return read, at
        while offsets[read + 1] <= at:
            read += 1
            _forget(active, listed, counts, level_offsets)
        step = _K_STEP(bases[at])
        others = np.uint32(step ^ np.uint32(15))
        found = np.uint32(0)
        missed = np.uint32(0)
        active[0, 0] |= np.uint32(1)
        for level in range(last, -1, -1):
            depth = np.uint32(3 * level)
            first = level_offsets[level]
            kept = np.uint64(0)
            visits += counts[level]
            for i in range(counts[level]):
                node = listed[first + np.uint64(i)]
                inmap = inmaps[node]
                exmap = exmaps[node]
                row = active[node]
                outside = np.uint64(0)
                still = np.uint32(0)
                for d in range(distance, 0, -1):
                    own = row[d]
                    lower = row[d - 1]
                    states = (_INMAP(own, step) | _INMAP(lower, others)) & inmap | lower
                    row[d] = states
                    still |= states
                    masks[d] = (_EXMAP(own, step) | _EXMAP(lower, others)) & exmap
                    outside |= masks[d]
                    if depth + np.uint32(3 + distance) >= length:
                        found |= _DISTANCES(states, depth, np.uint32(d), length, bound)
                own = row[0]
                inner = _INMAP(own, step)
                outer = _EXMAP(own, step)
                missed |= _MISSING(inner & ~inmap, outer & ~exmap, depth, length)
                states = inner & inmap
                row[0] = states
                masks[0] = outer & exmap
                if depth + np.uint32(3 + distance) >= length:
                    found |= _DISTANCES(states, depth, np.uint32(0), length, bound)
                    for d in range(levels):
                        if masks[d]:
                            deeper = np.uint32(depth + np.uint32(3))
                            found |= _DISTANCES(np.uint32(1), deeper, np.uint32(d), length, bound)
                if (still | states) != 0 or node == 0:
                    listed[first + kept] = node
                    kept += np.uint64(1)
                if outside | masks[0]:
                    _wake(
                        active, listed, counts, level + 1, level_offsets[level + 1],
                        prefix_sums[node], exmap, masks,
                    )  # fmt: skip
            counts[level] = np.int64(kept)
        if at >= start:
            matches[at] = found
            mismatches[at] = missed
    return read, stop
