"""The naive kernel (thesis 3.3.7, Fig. 12-15): visit every trie-node on every symbol.

Blocks take pieces of the stream; the threads of a block take turns with the trie-nodes of a level,
deepest level first, with ``syncthreads`` between levels, so that no state moves twice on a symbol.
Each block has its own active inmaps in global memory, laid out like inmaps:

    bit 0 the node (depth 3l) | bits 1-4 depth 3l + 1 | bits 5-20 depth 3l + 2

A node's step on symbol c: its depth-2 bits form the exmap mask (Fig. 14); each of its bits that is
set in the exmap activates the root bit of a child (equation 2). Its other bits form the next depths
of the same inmap (Fig. 13). Active states missing from the queried bitmaps are mismatches and are
cleared. States at depth k are matches and end there.

Operations: N nodes per symbol whether active or not (4 bytes read each), and k - 1 extra symbols
per piece.
"""

from __future__ import annotations

import numpy as np

from gpu.card.intrinsics import cuda, device_function
from gpu.exact.window_bits import bit_of, children_before, event_word, symbol_of

THREADS = 256  # threads per block; any multiple of 32


@device_function
def generate_next_depth(states, symbol):
    """Thesis Fig. 13-14: set bit i of a depth leads to bit 4 i + symbol of the next. uint64."""
    following = np.uint64(0)
    for i in range(16):
        if np.uint32(states >> np.uint32(i)) & np.uint32(1):
            position = np.uint64(np.uint64(4 * i) + np.uint64(symbol))
            following = np.uint64(following | np.uint64(np.uint64(1) << position))
    return following


@device_function
def report(mismatch, symbol, depth, node, k, mirror, found):
    """Write the event at a symbol and depth: the bit of a match, and the word if it fits.

    found: (matches, words, counter).
    """
    matches, words, counter = found
    start = np.uint32(symbol + np.uint32(1) - depth)
    if mirror:
        start = np.uint32(np.uint32(mirror - k) - start)
    if not mismatch:
        bit = np.uint32(np.uint32(1) << np.uint32(start & np.uint32(31)))
        cuda.atomic.or_(matches, np.uint32(start >> np.uint32(5)), bit)
    if words.size:
        slot = cuda.atomic.add(counter, 0, np.uint32(1))
        if slot < words.size:
            index = np.uint32(start + depth - np.uint32(1))
            words[slot] = event_word(mismatch, index, node, depth)


CHILDREN = np.uint32(0x1E)
GRANDCHILDREN = np.uint32(0x1FFFE0)


def naive(
    bases, starts, symbols, k, mirror, piece, level_offsets, inmaps, exmaps, prefix_sums, active,
    matches, words, counter,
):  # fmt: skip
    """The kernel, for any grid.

    Arguments: bases uint32[], starts uint32[W], symbols uint32, k uint32, mirror uint32 (as for the
    shuffle kernel, but ``matches`` also uses positions of the chunk), piece uint32 >= 1,
    level_offsets uint32[k // 3 + 2], inmaps uint32[N], exmaps uint64[N], prefix_sums uint32[N],
    active uint32[grid, N] (zeros before and after), matches uint32[W] (zeros before), words
    uint64[capacity] (size 0: no words), counter uint32[1].
    """
    found = (matches, words, counter)
    levels = k // np.uint32(3)
    block = cuda.blockIdx.x
    first = np.uint32(np.uint32(block) * piece)
    while first < symbols:
        stop = np.uint32(min(np.uint32(symbols - first), piece) + first)
        end = np.uint32(min(np.uint32(symbols - stop), np.uint32(k - np.uint32(1))) + stop)
        for at in range(first, end):
            position = np.uint32(at)
            symbol = symbol_of(bases, position)
            begins = np.uint32(0)
            if position < stop:
                begins = bit_of(starts, position)
            for up in range(levels + np.uint32(1)):
                level = np.uint32(levels - np.uint32(up))
                node = np.uint32(level_offsets[level] + np.uint32(cuda.threadIdx.x))
                while node < level_offsets[level + 1]:
                    states = np.uint32(active[block, node])
                    if level == 0:
                        states = np.uint32(states | begins)
                    if states != np.uint32(0):
                        depth = np.uint32(np.uint32(3) * level)
                        following = np.uint32(0)
                        if depth + 3 <= k:  # Fig. 14, before the inmap changes
                            mask = generate_next_depth(np.uint32(states >> np.uint32(5)), symbol)
                            exmap = exmaps[node]
                            if mask & exmap:
                                for group in range(64):
                                    if (mask & exmap) >> np.uint64(group) & np.uint64(1):
                                        child = np.uint32(
                                            prefix_sums[node]
                                            + children_before(exmap, np.uint64(group))
                                        )
                                        if depth + 3 == k:
                                            report(False, position, k, child, k, mirror, found)
                                        else:
                                            active[block, child] |= np.uint32(1)
                            if mask & ~exmap:
                                deeper = np.uint32(depth + np.uint32(3))
                                report(True, position, deeper, node, k, mirror, found)
                        if depth + 1 <= k:  # Fig. 13, depth 1 before depth 0
                            one = generate_next_depth(np.uint32(states & np.uint32(1)), symbol)
                            following = np.uint32(np.uint32(one) << np.uint32(1))
                        if depth + 2 <= k:
                            ones = np.uint32(np.uint32(states >> np.uint32(1)) & np.uint32(15))
                            two = generate_next_depth(ones, symbol)
                            following = np.uint32(
                                following | np.uint32(np.uint32(two) << np.uint32(5))
                            )
                        queried = np.uint32(inmaps[node])
                        missing = np.uint32(following & np.uint32(~queried))
                        following = np.uint32(following & queried)
                        for inner in range(1, 3):
                            of_depth = CHILDREN if inner == 1 else GRANDCHILDREN
                            deeper = np.uint32(depth + np.uint32(inner))
                            if missing & of_depth:
                                report(True, position, deeper, node, k, mirror, found)
                            if deeper == k and following & of_depth:
                                report(False, position, deeper, node, k, mirror, found)
                                following = np.uint32(following & np.uint32(~of_depth))
                        active[block, node] = following
                    node = np.uint32(node + np.uint32(cuda.blockDim.x))
                cuda.syncthreads()
        first = np.uint32(first + np.uint32(np.uint32(cuda.gridDim.x) * piece))
