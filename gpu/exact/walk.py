"""The walk kernel (thesis 3.3.2), default for k <= 12: a thread per window, a node per level.

Besides the packed stream (gpu/exact/window_bits.py) it reads:

    nodes   uint64[2 N]     word 2v      exmap of node v
                            word 2v + 1  63-32 inmap | 31-0 prefix sum        16 bytes, one sector
    jump    uint64[2 * 64**J]  the record of the node of every prefix of 3 J symbols, 0 if absent
    leaves  exmaps (k % 3 == 0) or inmaps (otherwise), one word per node: for the last step

A window begins at level J with one look-up in ``jump``, descends by

    child = prefix_sum + popc(exmap & ((1 << group) - 1)),   group = six bits per level (equation 2)

and ends with one bit of ``leaves``: for k % 3 == 0 the exmap bit on level k/3 - 1, so that the last
level is never read; otherwise the inmap bit on level k // 3.

Loads per window at k = 15 with J = 3: three words of the stream (a line for the whole warp), 16
bytes of ``jump`` (4 MB, stays in L2), and 8 bytes of ``leaves`` if the first twelve symbols are in
the trie. About 45 integer operations. A ballot yields one result word per warp. The L2 cache is the
bottleneck.

With event words the walk begins at the root and reads whole records, because a mismatch reports the
depth and the trie-node that it reached.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from gpu.card.intrinsics import (
    ALL_LANES,
    bit_mask_below,
    cuda,
    device_function,
    load_pair,
    load_word,
)
from gpu.exact.window_bits import (
    bit_of,
    children_before,
    event_word,
    has_bit,
    window_reader,
    write_votes,
)

THREADS = 256  # threads per block; any multiple of 32
JUMP_LEVEL = 3  # the deepest level for ``jump``: 64**3 records are 4 MB


def last_step_level(k: int) -> int:
    """The level whose bitmap answers the last step of a walk."""
    return k // 3 - 1 if k % 3 == 0 else k // 3


def jump_level(k: int) -> int:
    """The level at which walks begin."""
    return min(JUMP_LEVEL, last_step_level(k))


def descent(k: int, first: int) -> Any:
    """The device function that looks up a left-aligned window in the trie.

    It begins at level ``first``, that of ``jump`` (0: at the root).
    """
    last = last_step_level(k)
    rest = k % 3

    @device_function
    def descend(window, jump, nodes, leaves):
        if first == 0:
            exmap, more = load_pair(nodes, np.uint32(0))
        else:
            exmap, more = load_pair(jump, np.uint32(window >> np.uint64(64 - 6 * first)))
        there = True
        node = np.uint32(0)
        for level in range(first, last):
            group = np.uint64((window >> np.uint64(58 - 6 * level)) & np.uint64(63))
            there = has_bit(exmap, group)
            if not there:
                break
            node = np.uint32(np.uint32(more) + children_before(exmap, group))
            if level + 1 < last:
                exmap, more = load_pair(nodes, node)
        if there:
            if rest == 0:
                group = np.uint64((window >> np.uint64(58 - 6 * last)) & np.uint64(63))
                if first < last:
                    exmap = np.uint64(load_word(leaves, node))
                there = has_bit(exmap, group)
            else:
                group = np.uint64((window >> np.uint64(64 - 6 * last - 2 * rest)) & np.uint64(15))
                if rest == 1:
                    group = np.uint64(group & np.uint64(3)) + np.uint64(1)
                else:
                    group = group + np.uint64(5)
                inmap = np.uint64(more >> np.uint64(32))
                if first < last:
                    inmap = np.uint64(load_word(leaves, node))
                there = has_bit(inmap, group)
        return there

    return descend


def walk_bits(k: int, canonical: bool) -> Callable[..., None]:
    """The kernel that writes a bit per window; at least 32 W threads, 32 | block.

    Arguments: bases uint32[], starts uint32[W], jump uint64[], nodes uint64[], leaves (uint64[] or
    uint32[] as above), matches uint32[W] (every word is written, one per warp).
    """
    descend = descent(k, jump_level(k))
    read = window_reader(k, canonical)

    def walk(bases, starts, jump, nodes, leaves, matches):
        start = np.uint32(cuda.grid(1))
        word = np.uint32(start >> np.uint32(5))
        if word >= np.uint32(starts.size):
            return  # the whole warp
        matched = False
        if bit_of(starts, start):
            window = read(bases, start)
            matched = descend(window, jump, nodes, leaves)
        write_votes(matches, word, start, matched)

    return walk


def walk_words(k: int, canonical: bool) -> Callable[..., None]:
    """The kernel that writes a bit and an event word (Fig. 11) per window; launch as ``walk_bits``.

    Arguments: bases uint32[], starts uint32[W], nodes uint64[2 N], matches uint32[W], words
    uint64[capacity], counter uint32[1] (0 before; then the number of words, including those beyond
    the capacity, which are not written).
    """
    read = window_reader(k, canonical)
    levels = k // 3
    rest = k % 3

    def walk(bases, starts, nodes, matches, words, counter):
        start = np.uint32(cuda.grid(1))
        at = np.uint32(start >> np.uint32(5))
        if at >= np.uint32(starts.size):
            return  # the whole warp
        lane = np.uint32(start & np.uint32(31))
        matched = False
        node = np.uint32(0)
        depth = np.uint32(k)
        begins = bit_of(starts, start) != np.uint32(0)
        if begins:
            window = read(bases, start)
            matched = True
            exmap, more = load_pair(nodes, node)
            for level in range(levels):
                group = np.uint64((window >> np.uint64(58 - 6 * level)) & np.uint64(63))
                if not has_bit(exmap, group):
                    matched = False
                    depth = np.uint32(3 * level + 3)
                    if not has_bit(more, np.uint64(33) + np.uint64(group >> np.uint64(4))):
                        depth = np.uint32(3 * level + 1)
                    elif not has_bit(more, np.uint64(37) + np.uint64(group >> np.uint64(2))):
                        depth = np.uint32(3 * level + 2)
                    break
                node = np.uint32(np.uint32(more) + children_before(exmap, group))
                if level + 1 < levels or rest != 0:
                    exmap, more = load_pair(nodes, node)
            if matched and rest != 0:
                group = np.uint64((window >> np.uint64(60 - 6 * levels)) & np.uint64(15))
                if not has_bit(more, np.uint64(33) + np.uint64(group >> np.uint64(2))):
                    matched = False
                    depth = np.uint32(3 * levels + 1)
                elif rest == 2 and not has_bit(more, np.uint64(37) + group):
                    matched = False
                    depth = np.uint32(3 * levels + 2)
        bits = np.uint32(cuda.ballot_sync(ALL_LANES, matched))
        begun = np.uint32(cuda.ballot_sync(ALL_LANES, begins))
        slot = np.uint32(0)
        if lane == np.uint32(0):
            matches[at] = bits
            slot = np.uint32(cuda.atomic.add(counter, 0, np.uint32(cuda.popc(begun))))
        slot = np.uint32(cuda.shfl_sync(ALL_LANES, np.int32(slot), 0))
        below = np.uint32(begun & np.uint32(bit_mask_below(lane)))
        slot = np.uint32(slot + np.uint32(cuda.popc(below)))
        if begins and np.uint64(slot) < np.uint64(words.size):
            index = np.uint32(start + np.uint32(depth - np.uint32(1)))
            words[slot] = event_word(not matched, index, node, depth)

    return walk
