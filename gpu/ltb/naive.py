"""The naive kernel (thesis Fig. 30): 2 D + 1 sweeps of the trie a symbol.

    d = D      (a)  K of D                                              sweep 2 D
    d < D      (b)  I and S of d into d + 1, which has made its K already     2 d + 1
               (c)  K of d                                                    2 d

Global memory a symbol and active trie-node: (D + 1) (1 read + 1 write) for K, D (2 reads + 1 write)
for I and S, of 4 bytes each, beside the inmap; 2 D + 1 reads where no state is.
"""

from __future__ import annotations

import numpy as np

from gpu.card.intrinsics import device_function, load_word
from gpu.ltb.shared import found_bits, missed_bits, transition, wake
from gpu.ltb.sweeping import by_threads, sweeping

THREADS = 256
"""Threads a block; any number."""


@device_function
def sweeps(distance):
    """Sweeps a symbol."""
    return np.uint32(np.uint32(distance + distance) + np.uint32(1))


@device_function
def visit(
    active, base, nodes, node, sweep, step, others, depth, k, distance, inmaps, exmaps, prefix_sums
):
    """One of (a), (b) and (c) at a trie-node."""
    found = np.uint32(0)
    missed = np.uint32(0)
    d = np.uint32(sweep >> np.uint32(1))
    row = np.uint64(base + np.uint64(np.uint64(d) * nodes))
    states = np.uint32(active[row + np.uint64(node)])
    if node == np.uint32(0) and d == np.uint32(0):
        states = np.uint32(states | np.uint32(1))
    if states != np.uint32(0):
        inmap = np.uint32(load_word(inmaps, node))
        if sweep & np.uint32(1):
            above = np.uint64(row + nodes)
            reached, exmap, chosen = transition(
                np.uint32(0), states, step, others, depth, k, inmap, exmaps, node
            )
            there = np.uint32(active[above + np.uint64(node)])
            active[above + np.uint64(node)] = np.uint32(there | reached)
            found = found_bits(reached, chosen, depth, np.uint32(d + np.uint32(1)), k, distance)
            if chosen != np.uint64(0):
                wake(active, above, exmap, chosen, load_word(prefix_sums, node))
        else:
            reached, exmap, chosen = transition(
                states, np.uint32(0), step, others, depth, k, inmap, exmaps, node
            )
            active[row + np.uint64(node)] = reached
            found = found_bits(reached, chosen, depth, d, k, distance)
            if chosen != np.uint64(0):
                wake(active, row, exmap, chosen, load_word(prefix_sums, node))
            if d == np.uint32(0):
                missed = missed_bits(states, step, depth, k, inmap, exmaps, node)
    return found, missed


naive = sweeping(sweeps, by_threads(visit))
