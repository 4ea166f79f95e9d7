"""A Tree Bitmap snapshot on the GPU.

The structure of arrays is uploaded (16 bytes per trie-node); the GPU derives the interleaved
records and the tables from it (gpu/exact/derive.py, gpu/exact/bucket_table.py).

    SoA: inmaps uint32[N], exmaps uint64[N], prefix_sums uint32[N]      naive; last step of walk
    nodes uint64[2 N], 16 bytes a node                                   walk, shuffle
    jump uint64[2 * 64**J], at most 4 MB                                 walk, buckets
    table uint64[], as gpu/exact/bucket_table.py draws it                buckets
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from gpu.card.intrinsics import cuda
from gpu.card.launch import made, plain, with_threads
from gpu.exact import bucket_table as buckets
from gpu.exact import derive, walk
from trie.snapshots.tree_bitmap import TreeBitmap

WORD_NODES = 2**27
"""The number of nodes that an event word (thesis Fig. 11) can name."""


class DeviceNodes:
    """The trie-nodes of a snapshot in the memory of the current CUDA device, in both layouts.

    level_offsets is uint32[k // 3 + 2]. All work is queued on ``stream``; the host arrays must live
    until it has been synchronized.
    """

    def __init__(self, tree: TreeBitmap, stream: Any = 0) -> None:
        self.k = tree.k
        self.node_count = tree.node_count
        self.level_offsets = cuda.to_device(tree.level_offsets.astype(np.uint32), stream=stream)
        self.inmaps = cuda.to_device(tree.inmaps, stream=stream)
        self.exmaps = cuda.to_device(tree.exmaps, stream=stream)
        self.prefix_sums = cuda.to_device(tree.prefix_sums, stream=stream)
        self.nodes = cuda.device_array(2 * self.node_count, np.uint64, stream=stream)
        with_threads(plain(derive.interleave), self.node_count, derive.THREADS, stream)(
            self.inmaps, self.exmaps, self.prefix_sums, self.nodes
        )


class DeviceTree(DeviceNodes):
    """The snapshot ``tree`` in the memory of the current CUDA device, for all kernels.

    with_buckets: also build the bucket table; by default if the default kernel reads it.
    """

    def __init__(
        self, tree: TreeBitmap, stream: Any = 0, *, with_buckets: bool | None = None
    ) -> None:
        super().__init__(tree, stream)
        levels = walk.jump_level(self.k)
        entries = 64**levels
        self.jump = cuda.device_array(2 * entries, np.uint64, stream=stream)
        with_threads(made(derive.jump, levels), entries, derive.THREADS, stream)(
            self.nodes, self.jump
        )
        self.leaves = self.exmaps if self.k % 3 == 0 else self.inmaps
        self.shape: buckets.BucketShape | None = None
        self.table: Any = None
        if self.k >= buckets.BUCKETS_FROM if with_buckets is None else with_buckets:
            self.shape = buckets.choose_shape(self.k, kmer_count(tree))
            self._fill_buckets(tree, self.shape, stream)

    def _fill_buckets(self, tree: TreeBitmap, shape: buckets.BucketShape, stream: Any) -> None:
        """Expand the codes of the last level on the GPU and insert them."""
        prefixes = cuda.device_array(self.node_count, np.uint64, stream=stream)
        clear(prefixes[:1], stream)
        offsets = [int(offset) for offset in tree.level_offsets]
        for first, stop in pairwise(offsets[:-1]):
            with_threads(plain(derive.expand), stop - first, derive.THREADS, stream)(
                np.uint32(first), np.uint32(stop), self.exmaps, self.prefix_sums, prefixes
            )
        self.table = cuda.device_array(shape.size, np.uint64, stream=stream)
        counts = cuda.device_array(1 << shape.bits, np.uint32, stream=stream)
        clear(self.table, stream)
        clear(counts, stream)
        nodes = offsets[-1] - offsets[-2]
        with_threads(made(buckets.insert, shape), nodes, buckets.THREADS, stream)(
            np.uint32(offsets[-2]), self.inmaps, prefixes, self.table, counts
        )
        with_threads(made(buckets.finish, shape), counts.size, buckets.THREADS, stream)(
            self.table, counts
        )


def kmer_count(tree: TreeBitmap) -> int:
    """The number of k-mers in a snapshot."""
    last = tree.inmaps[int(tree.level_offsets[-2]) :]
    of_depth = (0x1, 0x1E, 0x1FFFE0)[tree.k % 3]
    return int(np.bitwise_count(last & np.uint32(of_depth)).sum())


def device_bytes(k: int, node_count: int, kmers: int, *, with_buckets: bool) -> int:
    """The most bytes that a snapshot takes on the GPU, while its tables are built."""
    if not with_buckets:
        return 32 * node_count + 16 * 64 ** walk.jump_level(k) + 64
    shape = buckets.choose_shape(k, kmers)
    return 40 * node_count + 16 * 64 ** walk.jump_level(k) + 8 * shape.size + (4 << shape.bits) + 64


def clear(words: Any, stream: Any) -> None:
    """Queue a zero fill of a device array (uint32[n] or uint64[n])."""
    with_threads(plain(derive.clear), words.size, derive.THREADS, stream)(words)
