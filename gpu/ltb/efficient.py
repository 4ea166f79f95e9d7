"""The transition-efficient kernel (thesis Fig. 32): max(D, 1) sweeps of the trie per symbol.

    d = D - 1 ... 0   all I, S and K that lead into d + 1, from the bitmaps of both, read once;
                      the sweep of d = 0 also makes the K of level 0, whose bitmap it has read

Global memory per symbol and active trie-node: 2 D reads and D + 1 writes of 4 bytes, besides the
inmap; the naive kernel has 3 D + 1 reads and 2 D + 1 writes.
"""

from __future__ import annotations

import numpy as np

from gpu.card.intrinsics import device_function, load_word
from gpu.ltb.sweeping import by_threads, missed_bits, move, sweeping, wake

THREADS = 256  # threads per block; any multiple of 32


@device_function
def sweeps(distance):
    """Sweeps per symbol."""
    return max(distance, np.uint32(1))


@device_function
def visit(active, base, nodes, node, d, moves, depth, limits, trie):
    """All transitions into dist-level d + 1 at a trie-node, and if d = 0 into level 0."""
    k, distance = limits
    found = np.uint32(0)
    missed = np.uint32(0)
    row = np.uint64(base + np.uint64(np.uint64(d) * nodes))
    above = np.uint64(row + nodes)
    lower = np.uint32(active[row + np.uint64(node)])
    if node == np.uint32(0) and d == np.uint32(0):
        lower = np.uint32(lower | np.uint32(1))
    states = np.uint32(0)
    if distance != np.uint32(0):
        states = np.uint32(active[above + np.uint64(node)])
    if np.uint32(lower | states) != np.uint32(0):
        inmap = np.uint32(load_word(trie[0], node))
        if distance != np.uint32(0):
            level = np.uint32(d + np.uint32(1))
            found, exmap, chosen = move(
                active, above, node, level, states, lower, moves, depth, limits, inmap, trie
            )
            wake(active, above, exmap, chosen, node, trie)
        if d == np.uint32(0) and lower != np.uint32(0):
            exact, exmap, chosen = move(
                active, row, node, d, lower, np.uint32(0), moves, depth, limits, inmap, trie
            )
            found = np.uint32(found | exact)
            wake(active, row, exmap, chosen, node, trie)
            missed = missed_bits(lower, moves[0], depth, k, inmap, trie[1], node)
    return found, missed


efficient = sweeping(sweeps, by_threads(visit))
