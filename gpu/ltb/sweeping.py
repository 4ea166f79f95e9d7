"""The common frame of the thesis's kernels (3.3.17, Fig. 30-35): pieces, symbols, sweeps by level.

A block takes a piece of the stream, and its threads take turns with the trie-nodes of a level. Each
block has its own active bitmaps in global memory, D + 1 for each trie-node, one array per
dist-level:

    active   uint32[grid, D + 1, N]   laid out as inmaps (trie/ltb/active.py)
    symbols  uint8                    bits 0-2 code (4: gap) | bit 3 first of a read

A sweep visits all levels of the trie, the deepest first, with ``syncthreads`` after each, so that a
child is done before its parent wakes it. The kernels differ in what a sweep does:

    naive      for d = D ... 0: I and S of d into d + 1, then K of d             2 D + 1 sweeps
    efficient  for d = D - 1 ... 0: all transitions into d + 1; last K of 0      max(D, 1) sweeps
    queue      as efficient, but woken children pass through a queue per warp in shared memory

Every thread collects the bits of a symbol in registers and adds them to the bitmaps in global
memory with ``atomicOr`` if there are any. A piece begins k + D - 1 symbols early, without output.

Device functions of the thesis's kernels; none depends on its thread or synchronizes.

Tuples keep the arguments few:

    moves    (step, others)                     bits of the symbol, and of the three others
    limits   (k, distance)
    trie     (inmaps, exmaps, prefix_sums)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpu.card.intrinsics import cuda, device_function, load_word, population
from gpu.exact.window_bits import children_before
from trie.ltb.active import steps

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


FIRST_OF_READ = 8

ARGUMENTS = (
    "uint8[::1]", "uint32", "uint32", "uint32", "uint32[::1]", "uint32[::1]", "uint64[::1]",
    "uint32[::1]", "uint32[::1]", "uint32[::1]", "uint32[::1]",
)  # fmt: skip
"""The argument types of the kernels."""


def by_threads(visit: Any) -> Any:
    """The ``visit_level`` of ``sweeping`` whose threads take turns with the nodes of a level.

    visit(active, base, nodes, node, sweep, ...): match and mismatch bits of a trie-node.
    """

    @device_function
    def visit_level(
        found, missed, scratch, thread, threads, active, base, nodes, first, end, sweep, moves,
        depth, limits, trie,
    ):  # fmt: skip
        node = np.uint32(first + thread)
        while node < end:
            of_match, of_mismatch = visit(
                active, base, nodes, node, sweep, moves, depth, limits, trie
            )
            found = np.uint32(found | of_match)
            missed = np.uint32(missed | of_mismatch)
            node = np.uint32(node + threads)
        return found, missed

    return visit_level


def sweeping(sweeps: Any, visit_level: Any, words: int = 1) -> Callable[..., None]:
    """The kernel, for any grid; 32 | block.

    Arguments: symbols uint8[n], k uint32, distance uint32, piece uint32 >= 1, level_offsets
    uint32[k // 3 + 2], inmaps uint32[N], exmaps uint64[N], prefix_sums uint32[N], active
    uint32[grid (D + 1) N], matches uint32[n] and mismatches uint32[n] (zeros before).

    sweeps(distance): the sweeps per symbol, numbered downwards to the last, 0. visit_level(found,
    missed, scratch, thread, threads, active, base, nodes, first, end, sweep, moves, depth, limits,
    trie): the block's sweep of the trie-nodes first..end - 1 of a level, which returns found and
    missed with this thread's bits added. scratch: uint32[``words``] in shared memory. The active
    bitmaps of dist-level d begin at base + d nodes. moves, limits, trie: as gpu/ltb/sweeping.py.
    """

    def kernel(
        symbols, k, distance, piece, level_offsets, inmaps, exmaps, prefix_sums, active, matches,
        mismatches,
    ):  # fmt: skip
        # allocated here, as the simulator has no shared memory in device functions; free if unused
        scratch = cuda.shared.array(words, np.uint32)
        count = np.uint32(symbols.size)
        nodes = np.uint64(inmaps.size)
        size = np.uint64(nodes * np.uint64(distance + np.uint32(1)))
        base = np.uint64(np.uint64(cuda.blockIdx.x) * size)
        overlap = np.uint32(np.uint32(k + distance) - np.uint32(1))
        first = np.uint32(np.uint32(cuda.blockIdx.x) * piece)
        while first < count:
            stop = np.uint32(first + min(np.uint32(count - first), piece))
            at = np.uint32(first - min(first, overlap))
            forget(active, base, size, cuda.threadIdx.x, cuda.blockDim.x)
            cuda.syncthreads()
            while at < stop:
                symbol = np.uint32(symbols[at])
                if symbol & np.uint32(FIRST_OF_READ):
                    forget(active, base, size, cuda.threadIdx.x, cuda.blockDim.x)
                    cuda.syncthreads()
                step = K_STEP(np.uint32(symbol & np.uint32(7)))
                others = np.uint32(step ^ np.uint32(15))
                found = np.uint32(0)
                missed = np.uint32(0)
                sweep = np.uint32(sweeps(distance))
                while sweep > np.uint32(0):
                    sweep = np.uint32(sweep - np.uint32(1))
                    level = np.uint32(k // np.uint32(3) + np.uint32(1))
                    while level > np.uint32(0):
                        level = np.uint32(level - np.uint32(1))
                        depth = np.uint32(np.uint32(3) * level)
                        found, missed = visit_level(
                            found, missed, scratch, np.uint32(cuda.threadIdx.x),
                            np.uint32(cuda.blockDim.x), active, base, nodes,
                            np.uint32(level_offsets[level]), np.uint32(level_offsets[level + 1]),
                            sweep, (step, others), depth, (k, distance),
                            (inmaps, exmaps, prefix_sums),
                        )  # fmt: skip
                        cuda.syncthreads()
                if at >= first:
                    if found != np.uint32(0):
                        cuda.atomic.or_(matches, at, found)
                    if missed != np.uint32(0):
                        cuda.atomic.or_(mismatches, at, missed)
                at = np.uint32(at + np.uint32(1))
            first = np.uint32(first + np.uint32(np.uint32(cuda.gridDim.x) * piece))

    return kernel
