"""What the kernels of the thesis share: pieces, symbols, sweeps of the trie by level.

They differ in how many sweeps a symbol takes and in what a block does with the trie-nodes of a
level in one. Behind each level all threads of the block wait, so that a node is dealt with before
its parent wakes it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpu.card.intrinsics import cuda, device_function
from gpu.ltb.kernels import FIRST_OF_READ
from gpu.ltb.shared import K_STEP, forget


def by_threads(visit: Any) -> Any:
    """A level's nodes to the threads of a block in turns, for ``sweeping``.

    visit(active, base, nodes, node, sweep, step, ...), as ``visit_level``: the match and the
    mismatch bits of a trie-node.
    """

    @device_function
    def visit_level(
        found, missed, scratch, thread, threads, active, base, nodes, first, end, sweep, step,
        others, depth, k, distance, inmaps, exmaps, prefix_sums,
    ):  # fmt: skip
        node = np.uint32(first + thread)
        while node < end:
            of_match, of_mismatch = visit(
                active, base, nodes, node, sweep, step, others, depth, k, distance, inmaps, exmaps,
                prefix_sums,
            )  # fmt: skip
            found = np.uint32(found | of_match)
            missed = np.uint32(missed | of_mismatch)
            node = np.uint32(node + threads)
        return found, missed

    return visit_level


def sweeping(sweeps: Any, visit_level: Any, words: int = 1) -> Callable[..., None]:
    """The kernel; ``[grid, block]``, any sizes; arguments as ``gpu.ltb.kernels.signature``.

    sweeps(distance): how many a symbol takes, numbered from the last, 0. visit_level(found, missed,
    scratch, thread, threads, active, base, nodes, first, end, sweep, step, others, depth, k,
    distance, inmaps, exmaps, prefix_sums): a sweep of the trie-nodes first..end - 1 of a level by
    the block; gives found and missed with the match and the mismatch bits of this thread's.
    scratch: uint32[``words``] in shared memory. The active bitmaps of dist-level d begin at base +
    d nodes.
    """

    def kernel(
        symbols, k, distance, piece, level_offsets, inmaps, exmaps, prefix_sums, active, matches,
        mismatches,
    ):  # fmt: skip
        # made here: in the simulator a device function cannot; where unused it takes nothing
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
                            sweep, step, others, depth, k, distance, inmaps, exmaps, prefix_sums,
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
