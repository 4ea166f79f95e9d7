"""The transition-efficient kernel (thesis Fig. 32): max(D, 1) sweeps of the trie a symbol.

    d = D - 1 ... 0   all I, S and K that lead into d + 1, from the bitmaps of both, read once;
                      the sweep of d = 0 makes the K of level 0 as well, which it has in hand

Global memory a symbol and active trie-node: 2 D reads and D + 1 writes of 4 bytes, beside the
inmap, for the naive kernel's 3 D + 1 reads and 2 D + 1 writes.
"""

from __future__ import annotations

import numpy as np

from gpu.intrinsics import cuda, load_word
from gpu.kernels.ltb import FIRST_OF_READ
from gpu.kernels.ltb.shared import (
    K_STEP,
    forget,
    found_bits,
    missed_bits,
    transition,
    wake,
)

THREADS = 256
"""Threads a block; any number."""


def efficient(  # type: ignore[no-untyped-def]
    symbols, k, distance, piece, level_offsets, inmaps, exmaps, prefix_sums, active, matches,
    mismatches,
):  # fmt: skip
    """The kernel; ``[grid, block]``, any sizes; arguments as ``gpu.kernels.ltb.signature``."""
    count = np.uint32(symbols.size)
    nodes = np.uint64(inmaps.size)
    words = np.uint64(nodes * np.uint64(distance + np.uint32(1)))
    base = np.uint64(np.uint64(cuda.blockIdx.x) * words)
    overlap = np.uint32(np.uint32(k + distance) - np.uint32(1))
    first = np.uint32(np.uint32(cuda.blockIdx.x) * piece)
    while first < count:
        stop = np.uint32(first + min(np.uint32(count - first), piece))
        at = np.uint32(first - min(first, overlap))
        forget(active, base, words, cuda.threadIdx.x, cuda.blockDim.x)
        cuda.syncthreads()
        while at < stop:
            symbol = np.uint32(symbols[at])
            if symbol & np.uint32(FIRST_OF_READ):
                forget(active, base, words, cuda.threadIdx.x, cuda.blockDim.x)
                cuda.syncthreads()
            step = K_STEP(np.uint32(symbol & np.uint32(7)))
            others = np.uint32(step ^ np.uint32(15))
            found = np.uint32(0)
            missed = np.uint32(0)
            sweep = max(distance, np.uint32(1))
            while sweep > np.uint32(0):
                sweep = np.uint32(sweep - np.uint32(1))
                d = sweep
                row = np.uint64(base + np.uint64(np.uint64(d) * nodes))
                above = np.uint64(row + nodes)
                level = np.uint32(k // np.uint32(3) + np.uint32(1))
                while level > np.uint32(0):
                    level = np.uint32(level - np.uint32(1))
                    depth = np.uint32(np.uint32(3) * level)
                    node = np.uint32(level_offsets[level] + np.uint32(cuda.threadIdx.x))
                    end = np.uint32(level_offsets[level + 1])
                    while node < end:
                        lower = np.uint32(active[row + np.uint64(node)])
                        if node == np.uint32(0) and d == np.uint32(0):
                            lower = np.uint32(lower | np.uint32(1))
                        states = np.uint32(0)
                        if distance != np.uint32(0):
                            states = np.uint32(active[above + np.uint64(node)])
                        if np.uint32(lower | states) != np.uint32(0):
                            inmap = np.uint32(load_word(inmaps, node))
                            if distance != np.uint32(0):
                                reached, exmap, chosen = transition(
                                    states, lower, step, others, depth, k, inmap, exmaps, node
                                )
                                active[above + np.uint64(node)] = reached
                                found = np.uint32(
                                    found
                                    | found_bits(
                                        reached, chosen, depth, np.uint32(d + np.uint32(1)), k,
                                        distance,
                                    )
                                )  # fmt: skip
                                if chosen != np.uint64(0):
                                    wake(active, above, exmap, chosen, load_word(prefix_sums, node))
                            if d == np.uint32(0) and lower != np.uint32(0):
                                reached, exmap, chosen = transition(
                                    lower, np.uint32(0), step, others, depth, k, inmap, exmaps,
                                    node,
                                )  # fmt: skip
                                active[row + np.uint64(node)] = reached
                                found = np.uint32(
                                    found | found_bits(reached, chosen, depth, d, k, distance)
                                )
                                if chosen != np.uint64(0):
                                    wake(active, row, exmap, chosen, load_word(prefix_sums, node))
                                missed = np.uint32(
                                    missed | missed_bits(lower, step, depth, k, inmap, exmaps, node)
                                )
                        node = np.uint32(node + np.uint32(cuda.blockDim.x))
                    cuda.syncthreads()
            if at >= first:
                if found != np.uint32(0):
                    cuda.atomic.or_(matches, at, found)
                if missed != np.uint32(0):
                    cuda.atomic.or_(mismatches, at, missed)
            at = np.uint32(at + np.uint32(1))
        first = np.uint32(first + np.uint32(np.uint32(cuda.gridDim.x) * piece))
