"""Device functions of the thesis's kernels; none depends on its thread or synchronizes.

Tuples keep the arguments few:

    moves    (step, others)                     bits of the symbol, and of the three others
    limits   (k, distance)
    trie     (inmaps, exmaps, prefix_sums)
"""

from __future__ import annotations

import numpy as np

from gpu.card.intrinsics import device_function, load_word, population
from gpu.exact.window_bits import children_before
from trie.ltb.transitions import steps

K_STEP, INMAP, EXMAP, DISTANCES, MISSING = steps(device_function)


@device_function
def forget(active, base, words, thread, threads):
    """Clear a thread's share of the active bitmaps of its block."""
    at = np.uint64(thread)
    while at < words:
        active[base + at] = np.uint32(0)
        at = np.uint64(at + np.uint64(threads))


@device_function
def wake(active, row, exmap, chosen, node, trie):
    """Activate the root bit of every child in ``chosen``, at the dist-level that begins at ``row``.

    A child has one parent, and its level is done, so no other thread writes there now.
    """
    if chosen != np.uint64(0):
        prefix_sum = load_word(trie[2], node)
        while chosen != np.uint64(0):
            below = np.uint64(np.uint64(~chosen) & np.uint64(chosen - np.uint64(1)))
            group = population(below)
            child = np.uint64(np.uint32(prefix_sum + children_before(exmap, group)))
            active[row + child] = np.uint32(active[row + child] | np.uint32(1))
            chosen = np.uint64(chosen & np.uint64(chosen - np.uint64(1)))


@device_function
def transition(states, lower, moves, depth, k, inmap, exmaps, node):
    """K of ``states``, I and S of ``lower`` at a node: (new states, exmap, chosen children)."""
    step, others = moves
    reached = np.uint32(INMAP(states, step) | INMAP(lower, others))
    reached = np.uint32(np.uint32(reached & inmap) | lower)
    exmap = np.uint64(0)
    chosen = np.uint64(0)
    if np.uint32(depth + np.uint32(3)) <= k:
        chosen = np.uint64(EXMAP(states, step) | EXMAP(lower, others))
        if chosen != np.uint64(0):
            exmap = np.uint64(load_word(exmaps, node))
            chosen = np.uint64(chosen & exmap)
    return reached, exmap, chosen


@device_function
def move(active, row, node, d, states, lower, moves, depth, limits, inmap, trie):
    """Store the transition into dist-level d, whose bitmaps begin at ``row``.

    Returns match bits, exmap and the chosen children.
    """
    k, distance = limits
    reached, exmap, chosen = transition(states, lower, moves, depth, k, inmap, trie[1], node)
    active[row + np.uint64(node)] = reached
    return found_bits(reached, chosen, depth, d, k, distance), exmap, chosen


@device_function
def found_bits(reached, chosen, depth, d, k, distance):
    """Match bits (equation 4) of the new states of a node and of its children's root bits."""
    found = np.uint32(0)
    if np.uint32(depth + np.uint32(np.uint32(3) + distance)) >= k:
        found = DISTANCES(reached, depth, d, k, distance)
        if chosen != np.uint64(0):
            deeper = np.uint32(depth + np.uint32(3))
            found = np.uint32(found | DISTANCES(np.uint32(1), deeper, d, k, distance))
    return found


@device_function
def missed_bits(states, step, depth, k, inmap, exmaps, node):
    """Mismatch bits of the states of a node at dist-level 0."""
    inner = np.uint32(INMAP(states, step) & np.uint32(~inmap))
    outer = np.uint64(0)
    if np.uint32(depth + np.uint32(3)) <= k:
        outer = np.uint64(EXMAP(states, step))
        if outer != np.uint64(0):
            outer = np.uint64(outer & np.uint64(~load_word(exmaps, node)))
    return MISSING(inner, outer, depth, k)
