"""Transitions of one trie-node's active bitmap, by bit tricks (thesis Fig. 13, 14, 27-29).

An active bitmap has the layout of an inmap, one for each dist-level:

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

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

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
