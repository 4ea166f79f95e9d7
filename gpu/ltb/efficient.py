"""The transition-efficient kernel (thesis Fig. 32): max(D, 1) sweeps of the trie a symbol.

    d = D - 1 ... 0   all I, S and K that lead into d + 1, from the bitmaps of both, read once;
                      the sweep of d = 0 makes the K of level 0 as well, which it has in hand

Global memory a symbol and active trie-node: 2 D reads and D + 1 writes of 4 bytes, beside the
inmap, for the naive kernel's 3 D + 1 reads and 2 D + 1 writes.
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
    return max(distance, np.uint32(1))


@device_function
def visit(
    active, base, nodes, node, d, step, others, depth, k, distance, inmaps, exmaps, prefix_sums
):
    """All that leads into level d + 1 at a trie-node, and with d = 0 into level 0."""
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
        inmap = np.uint32(load_word(inmaps, node))
        if distance != np.uint32(0):
            reached, exmap, chosen = transition(
                states, lower, step, others, depth, k, inmap, exmaps, node
            )
            active[above + np.uint64(node)] = reached
            found = found_bits(reached, chosen, depth, np.uint32(d + np.uint32(1)), k, distance)
            if chosen != np.uint64(0):
                wake(active, above, exmap, chosen, load_word(prefix_sums, node))
        if d == np.uint32(0) and lower != np.uint32(0):
            reached, exmap, chosen = transition(
                lower, np.uint32(0), step, others, depth, k, inmap, exmaps, node
            )
            active[row + np.uint64(node)] = reached
            found = np.uint32(found | found_bits(reached, chosen, depth, d, k, distance))
            if chosen != np.uint64(0):
                wake(active, row, exmap, chosen, load_word(prefix_sums, node))
            missed = missed_bits(lower, step, depth, k, inmap, exmaps, node)
    return found, missed


efficient = sweeping(sweeps, by_threads(visit))
