"""Kernels that derive other layouts of a snapshot on the GPU.

interleave   nodes[2v] = exmap, nodes[2v + 1] = inmap << 32 | prefix sum
expand       the prefix of every node, level by level
jump         the record of the node of every prefix of 3 J symbols, 0 if there is none
clear        zeros
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gpu.card.intrinsics import cuda, load_pair
from gpu.exact.window_bits import children_before, has_bit

THREADS = 256  # threads per block; any multiple of 32


def interleave(inmaps, exmaps, prefix_sums, nodes):
    """Arguments: uint32[N], uint64[N], uint32[N], uint64[2 N]; one thread per node."""
    node = np.uint64(cuda.grid(1))
    if node < np.uint64(inmaps.size):
        inmap = np.uint64(inmaps[node])
        nodes[np.uint64(2) * node] = exmaps[node]
        nodes[np.uint64(2) * node + np.uint64(1)] = np.uint64(
            np.uint64(inmap << np.uint64(32)) | np.uint64(prefix_sums[node])
        )


def expand(first, stop, exmaps, prefix_sums, prefixes):
    """Write the child prefixes of the nodes [first, stop) of a level; one thread per node.

    Arguments: uint32, uint32, uint64[N], uint32[N], prefixes uint64[N] (right-aligned codes).
    """
    node = np.uint64(first) + np.uint64(cuda.grid(1))
    if node < np.uint64(stop):
        exmap = np.uint64(exmaps[node])
        child = np.uint64(prefix_sums[node])
        prefix = np.uint64(prefixes[node] << np.uint64(6))
        for group in range(64):
            if has_bit(exmap, np.uint64(group)):
                prefixes[child] = np.uint64(prefix | np.uint64(group))
                child = np.uint64(child + np.uint64(1))


def clear(words):
    """Argument: uint32[n] or uint64[n] to fill with zeros; one thread per word."""
    at = np.uint64(cuda.grid(1))
    if at < np.uint64(words.size):
        words[at] = 0


def jump(levels: int) -> Callable[..., None]:
    """The kernel: nodes uint64[2 N], table uint64[2 * 64**levels]; one thread per prefix."""

    def kernel(nodes, table):
        prefix = np.uint64(cuda.grid(1))
        if np.uint64(2) * prefix >= np.uint64(table.size):
            return
        exmap, more = load_pair(nodes, np.uint32(0))
        for level in range(levels):
            group = np.uint64((prefix >> np.uint64(6 * (levels - 1 - level))) & np.uint64(63))
            if not has_bit(exmap, group):
                exmap = np.uint64(0)
                more = np.uint64(0)
                break
            node = np.uint32(np.uint32(more) + children_before(exmap, group))
            exmap, more = load_pair(nodes, node)
        table[np.uint64(2) * prefix] = exmap
        table[np.uint64(2) * prefix + np.uint64(1)] = more

    return kernel
