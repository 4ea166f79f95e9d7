"""What the naive and the efficient kernel share: pieces, symbols, sweeps of the trie by level.

They differ in how many sweeps a symbol takes and in what a thread does with a trie-node of one
(``visit``). Behind each level all threads of the block wait, so that a node is dealt with before
its parent wakes it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpu.intrinsics import cuda
from gpu.kernels.ltb import FIRST_OF_READ
from gpu.kernels.ltb.shared import K_STEP, forget


def sweeping(sweeps: Any, visit: Any) -> Callable[..., None]:
    """The kernel; ``[grid, block]``, any sizes; arguments as ``gpu.kernels.ltb.signature``.

    sweeps(distance): how many a symbol takes, numbered from the last, 0. visit(active, base, nodes,
    node, sweep, step, others, depth, k, distance, inmaps, exmaps, prefix_sums): the match and the
    mismatch bits of a trie-node in a sweep; the active bitmaps of level d begin at base + d nodes.
    """

    def kernel(  # type: ignore[no-untyped-def]
        symbols, k, distance, piece, level_offsets, inmaps, exmaps, prefix_sums, active, matches,
        mismatches,
    ):  # fmt: skip
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
                sweep = np.uint32(sweeps(distance))
                while sweep > np.uint32(0):
                    sweep = np.uint32(sweep - np.uint32(1))
                    level = np.uint32(k // np.uint32(3) + np.uint32(1))
                    while level > np.uint32(0):
                        level = np.uint32(level - np.uint32(1))
                        depth = np.uint32(np.uint32(3) * level)
                        node = np.uint32(level_offsets[level] + np.uint32(cuda.threadIdx.x))
                        end = np.uint32(level_offsets[level + 1])
                        while node < end:
                            of_match, of_mismatch = visit(
                                active, base, nodes, node, sweep, step, others, depth, k, distance,
                                inmaps, exmaps, prefix_sums,
                            )  # fmt: skip
                            found = np.uint32(found | of_match)
                            missed = np.uint32(missed | of_mismatch)
                            node = np.uint32(node + np.uint32(cuda.blockDim.x))
                        cuda.syncthreads()
                if at >= first:
                    if found != np.uint32(0):
                        cuda.atomic.or_(matches, at, found)
                    if missed != np.uint32(0):
                        cuda.atomic.or_(mismatches, at, missed)
                at = np.uint32(at + np.uint32(1))
            first = np.uint32(first + np.uint32(np.uint32(cuda.gridDim.x) * piece))

    return kernel
