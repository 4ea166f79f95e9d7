"""The naive kernel (thesis Fig. 30): 2 D + 1 sweeps of the trie a symbol.

    d = D      (a)  K of D
    d < D      (b)  I and S of d into d + 1, which has made its K already
               (c)  K of d

Global memory a symbol and active trie-node: (D + 1) (1 read + 1 write) for K, D (2 reads + 1 write)
for I and S, of 4 bytes each, beside the inmap; 2 D + 1 reads where no state is.
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


def naive(  # type: ignore[no-untyped-def]
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
            d = np.uint32(distance + np.uint32(1))
            while d > np.uint32(0):
                d = np.uint32(d - np.uint32(1))
                row = np.uint64(base + np.uint64(np.uint64(d) * nodes))
                above = np.uint64(row + nodes)
                # (b) I and S into d + 1
                level = np.uint32(0)
                if d < distance:
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
                        if lower != np.uint32(0):
                            inmap = np.uint32(load_word(inmaps, node))
                            reached, exmap, chosen = transition(
                                np.uint32(0), lower, step, others, depth, k, inmap, exmaps, node
                            )
                            states = np.uint32(active[above + np.uint64(node)])
                            active[above + np.uint64(node)] = np.uint32(states | reached)
                            found = np.uint32(
                                found
                                | found_bits(
                                    reached, chosen, depth, np.uint32(d + np.uint32(1)), k, distance
                                )
                            )
                            if chosen != np.uint64(0):
                                wake(active, above, exmap, chosen, load_word(prefix_sums, node))
                        node = np.uint32(node + np.uint32(cuda.blockDim.x))
                    cuda.syncthreads()
                # (a), (c) K of d
                level = np.uint32(k // np.uint32(3) + np.uint32(1))
                while level > np.uint32(0):
                    level = np.uint32(level - np.uint32(1))
                    depth = np.uint32(np.uint32(3) * level)
                    node = np.uint32(level_offsets[level] + np.uint32(cuda.threadIdx.x))
                    end = np.uint32(level_offsets[level + 1])
                    while node < end:
                        states = np.uint32(active[row + np.uint64(node)])
                        if node == np.uint32(0) and d == np.uint32(0):
                            states = np.uint32(states | np.uint32(1))
                        if states != np.uint32(0):
                            inmap = np.uint32(load_word(inmaps, node))
                            reached, exmap, chosen = transition(
                                states, np.uint32(0), step, others, depth, k, inmap, exmaps, node
                            )
                            active[row + np.uint64(node)] = reached
                            found = np.uint32(
                                found | found_bits(reached, chosen, depth, d, k, distance)
                            )
                            if chosen != np.uint64(0):
                                wake(active, row, exmap, chosen, load_word(prefix_sums, node))
                            if d == np.uint32(0):
                                missed = np.uint32(
                                    missed
                                    | missed_bits(states, step, depth, k, inmap, exmaps, node)
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
