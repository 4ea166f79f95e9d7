"""A Tree Bitmap snapshot on the card.

The structure of arrays travels (16 bytes a trie-node); the card itself makes the interleaved records
and the table of the first levels (gpu/kernels/derive.py).

    SoA: inmaps uint32[N], exmaps uint64[N], prefix_sums uint32[N]      naive; last step of walk
    nodes uint64[2 N], 16 bytes a node                                   walk, shuffle
    jump uint64[2 * 64**J], at most 4 MB                                 walk
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpu.compiled import kernel
from gpu.intrinsics import cuda
from gpu.kernels import derive, walk
from trie.tree_bitmap import TreeBitmap

WORD_NODES = 2**27
"""Nodes that an event word (thesis Fig. 11) can name."""


class DeviceTree:
    """The snapshot ``tree`` in the memory of the current CUDA device.

    Attributes are device arrays, laid out as the module says; level_offsets uint32[k // 3 + 2].
    Everything is queued on ``stream``; the host arrays must stay until it has been synchronized.
    """

    def __init__(self, tree: TreeBitmap, stream: Any = 0) -> None:
        self.k = tree.k
        self.node_count = tree.node_count
        self.level_offsets = cuda.to_device(tree.level_offsets.astype(np.uint32), stream=stream)
        self.inmaps = cuda.to_device(tree.inmaps, stream=stream)
        self.exmaps = cuda.to_device(tree.exmaps, stream=stream)
        self.prefix_sums = cuda.to_device(tree.prefix_sums, stream=stream)
        self.nodes = cuda.device_array(2 * self.node_count, np.uint64, stream=stream)
        grid = -(-self.node_count // derive.THREADS)
        kernel("interleave")[grid, derive.THREADS, stream](
            self.inmaps, self.exmaps, self.prefix_sums, self.nodes
        )
        entries = 64 ** walk.jump_level(self.k)
        self.jump = cuda.device_array(2 * entries, np.uint64, stream=stream)
        kernel("jump", self.k)[-(-entries // derive.THREADS), derive.THREADS, stream](
            self.nodes, self.jump
        )
        self.leaves = self.exmaps if self.k % 3 == 0 else self.inmaps

    @property
    def nbytes(self) -> int:
        """Bytes on the card."""
        return device_bytes(self.k, self.node_count)


def device_bytes(k: int, node_count: int) -> int:
    """The bytes that a snapshot of so many nodes takes on the card."""
    return 32 * node_count + 16 * 64 ** walk.jump_level(k) + 4 * (k // 3 + 2)
