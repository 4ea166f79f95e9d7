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

Transitions take bit tricks (thesis Fig. 13, 14, 27-29). An active bitmap has the layout of an
inmap, one for each dist-level:

    bit 0 the node (depth 3l) | bits 1-4 depth 3l + 1 | bits 5-20 depth 3l + 2

State i of a depth leads to states 4 i ... 4 i + 3 of the next. ``spread`` moves every bit i of a
depth to 4 i at once, where the thesis visits each set bit; times a mask of 4 bits this gives

    generate_next_depth      spread(states) * step            step = 1 << symbol; 0 on a gap code
    generate_next_s_depth    spread(states) * 0xF  XOR  that  = spread(states) * (step ^ 0xF)

because no two products overlap. So K- and S-transitions are the same functions with different
masks, a gap code needs no special case, and I-transitions are an OR of whole bitmaps.

``steps`` makes the functions for numba's CPU target, CUDA target and simulator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trie.cpu.intrinsics import popcount, trailing_zeros
from trie.cpu.jit import njit

CHILDREN = 0x1E
GRANDCHILDREN = 0x1FFFE0


class Transitions(NamedTuple):
    """The functions, compiled for one target; states and results as laid out above."""

    k_step: Any  # uint32: the mask of 4 bits of K-transitions on a symbol (0..3; 4: a gap code)
    transition_inmap: Any
    """(states uint32, step uint32) -> uint32: the inmap bits reached, existing or not."""
    exmap_transitions: Any
    """(states uint32, step uint32) -> uint64: the exmap bits reached, existing or not."""
    distances: Any
    """(states, depth of bit 0, level, k, distance) -> uint32: the match bits (equation 4)."""
    missing_depths: Any
    """(inmap bits, exmap bits, depth of bit 0, k) -> uint32: bits of the depths of mismatches."""


def steps(wrap: Callable[..., Any]) -> Transitions:
    """The functions for one target; ``wrap`` compiles and inlines a plain function."""

    @wrap
    def spread(states):
        """Bit i (0..15) of a uint64 to bit 4 i: 8 operations."""
        x = np.uint64(states)
        x = np.uint64(x | np.uint64(x << np.uint64(24))) & np.uint64(0x000000FF000000FF)
        x = np.uint64(x | np.uint64(x << np.uint64(12))) & np.uint64(0x000F000F000F000F)
        x = np.uint64(x | np.uint64(x << np.uint64(6))) & np.uint64(0x0303030303030303)
        return np.uint64(x | np.uint64(x << np.uint64(3))) & np.uint64(0x1111111111111111)

    @wrap
    def spread_four(states):
        """Bit i (0..3) of a uint32 to bit 4 i."""
        x = np.uint32(states)
        x = np.uint32(np.uint32(x | np.uint32(x << np.uint32(6))) & np.uint32(0x0303))
        return np.uint32(np.uint32(x | np.uint32(x << np.uint32(3))) & np.uint32(0x1111))

    @wrap
    def k_step(symbol):
        return np.uint32(np.uint32(np.uint32(1) << np.uint32(symbol)) & np.uint32(15))

    @wrap
    def transition_inmap(states, step):
        one = np.uint32(np.uint32(states & np.uint32(1)) * step)
        ones = np.uint32(np.uint32(states >> np.uint32(1)) & np.uint32(15))
        two = np.uint32(spread_four(ones) * step)
        return np.uint32(np.uint32(one << np.uint32(1)) | np.uint32(two << np.uint32(5)))

    @wrap
    def exmap_transitions(states, step):
        twos = np.uint64(np.uint32(states >> np.uint32(5)))
        return np.uint64(spread(twos) * np.uint64(step))

    @wrap
    def distances(states, depth, level, k, distance):
        found = np.uint32(0)
        least = np.uint32(np.uint32(level + k) - distance)  # equation 4
        if states & np.uint32(1) and depth >= least:
            found = np.uint32(np.uint32(1) << np.uint32(np.uint32(level + k) - depth))
        depth = np.uint32(depth + np.uint32(1))
        if states & np.uint32(CHILDREN) and depth >= least:
            found |= np.uint32(np.uint32(1) << np.uint32(np.uint32(level + k) - depth))
        depth = np.uint32(depth + np.uint32(1))
        if states & np.uint32(GRANDCHILDREN) and depth >= least:
            found |= np.uint32(np.uint32(1) << np.uint32(np.uint32(level + k) - depth))
        return np.uint32(found)

    @wrap
    def missing_depths(inner, outer, depth, k):
        missed = np.uint32(0)
        bit = np.uint32(np.uint32(2) << np.uint32(depth))
        if inner & np.uint32(CHILDREN) and depth < k:
            missed = bit
        if inner & np.uint32(GRANDCHILDREN) and np.uint32(depth + np.uint32(1)) < k:
            missed |= np.uint32(bit << np.uint32(1))
        if outer != np.uint64(0) and np.uint32(depth + np.uint32(2)) < k:
            missed |= np.uint32(bit << np.uint32(2))
        return np.uint32(missed)

    return Transitions(k_step, transition_inmap, exmap_transitions, distances, missing_depths)


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
