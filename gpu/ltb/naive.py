"""The naive kernel (thesis Fig. 30): 2 D + 1 sweeps of the trie per symbol.

    d = D      (a)  K of D                                              sweep 2 D
    d < D      (b)  I and S of d into d + 1, whose K is done                  2 d + 1
               (c)  K of d                                                    2 d

Global memory per symbol and active trie-node: (D + 1) (1 read + 1 write) for K, D (2 reads + 1
write) for I and S, of 4 bytes each, besides the inmap; 2 D + 1 reads for a trie-node without a
state.
"""

from __future__ import annotations

import numpy as np

from gpu.card.intrinsics import device_function, load_word
from gpu.ltb.sweeping import by_threads, found_bits, missed_bits, move, sweeping, transition, wake

THREADS = 256  # threads per block; any multiple of 32


@device_function
def sweeps(distance):
    """Sweeps per symbol."""
    return np.uint32(np.uint32(distance + distance) + np.uint32(1))


@device_function
def visit(active, base, nodes, node, sweep, moves, depth, limits, trie):
    """Step (a), (b) or (c) at a trie-node."""
    k, distance = limits
    found = np.uint32(0)
    missed = np.uint32(0)
    d = np.uint32(sweep >> np.uint32(1))
    row = np.uint64(base + np.uint64(np.uint64(d) * nodes))
    states = np.uint32(active[row + np.uint64(node)])
    if node == np.uint32(0) and d == np.uint32(0):
        states = np.uint32(states | np.uint32(1))
    if states != np.uint32(0):
        inmap = np.uint32(load_word(trie[0], node))
        if sweep & np.uint32(1):
            above = np.uint64(row + nodes)
            reached, exmap, chosen = transition(
                np.uint32(0), states, moves, depth, k, inmap, trie[1], node
            )
            there = np.uint32(active[above + np.uint64(node)])
            active[above + np.uint64(node)] = np.uint32(there | reached)
            found = found_bits(reached, chosen, depth, np.uint32(d + np.uint32(1)), k, distance)
            wake(active, above, exmap, chosen, node, trie)
        else:
            found, exmap, chosen = move(
                active, row, node, d, states, np.uint32(0), moves, depth, limits, inmap, trie
            )
            wake(active, row, exmap, chosen, node, trie)
            if d == np.uint32(0):
                missed = missed_bits(states, moves[0], depth, k, inmap, trie[1], node)
    return found, missed


naive = sweeping(sweeps, by_threads(visit))
