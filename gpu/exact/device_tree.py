"""A Tree Bitmap snapshot on the GPU.

The structure of arrays is uploaded (16 bytes per trie-node); the GPU derives the interleaved
records and the tables from it.

    SoA: inmaps uint32[N], exmaps uint64[N], prefix_sums uint32[N]      naive; last step of walk
    nodes uint64[2 N], 16 bytes a node                                   walk, shuffle
    jump uint64[2 * 64**J], at most 4 MB                                 walk, buckets
    table uint64[], as gpu/exact/bucket_table.py draws it                buckets

The kernels that derive them:

interleave   nodes[2v] = exmap, nodes[2v + 1] = inmap << 32 | prefix sum
expand       the prefix of every node, level by level
jump         the record of the node of every prefix of 3 J symbols, 0 if there is none
clear        zeros
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from gpu.card.intrinsics import cuda, load_pair
from gpu.card.kernel_cache import made, plain, with_threads
from gpu.exact import bucket_table, walk
from gpu.exact.window_bits import children_before, has_bit
from trie.snapshots.tree_bitmap import TreeBitmap

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


def clear_words(words):
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
        with_threads(plain(interleave), self.node_count, THREADS, stream)(
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
        with_threads(made(jump, levels), entries, THREADS, stream)(self.nodes, self.jump)
        self.leaves = self.exmaps if self.k % 3 == 0 else self.inmaps
        self.shape: bucket_table.BucketShape | None = None
        self.table: Any = None
        if self.k >= bucket_table.BUCKETS_FROM if with_buckets is None else with_buckets:
            self.shape = bucket_table.choose_shape(self.k, kmer_count(tree))
            self._fill_buckets(tree, self.shape, stream)

    def _fill_buckets(self, tree: TreeBitmap, shape: bucket_table.BucketShape, stream: Any) -> None:
        """Expand the codes of the last level on the GPU and insert them."""
        prefixes = cuda.device_array(self.node_count, np.uint64, stream=stream)
        clear(prefixes[:1], stream)
        offsets = [int(offset) for offset in tree.level_offsets]
        for first, stop in pairwise(offsets[:-1]):
            with_threads(plain(expand), stop - first, THREADS, stream)(
                np.uint32(first), np.uint32(stop), self.exmaps, self.prefix_sums, prefixes
            )
        self.table = cuda.device_array(shape.size, np.uint64, stream=stream)
        counts = cuda.device_array(1 << shape.bits, np.uint32, stream=stream)
        clear(self.table, stream)
        clear(counts, stream)
        nodes = offsets[-1] - offsets[-2]
        with_threads(made(bucket_table.insert, shape), nodes, bucket_table.THREADS, stream)(
            np.uint32(offsets[-2]), self.inmaps, prefixes, self.table, counts
        )
        with_threads(made(bucket_table.finish, shape), counts.size, bucket_table.THREADS, stream)(
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
    shape = bucket_table.choose_shape(k, kmers)
    return 40 * node_count + 16 * 64 ** walk.jump_level(k) + 8 * shape.size + (4 << shape.bits) + 64


def expected_bytes(k: int, kmers: int, *, with_buckets: bool) -> int:
    """``device_bytes`` of a tree of random k-mers, whose nodes are estimated."""
    nodes = sum(min(64**level, kmers) for level in range(k // 3 + (k % 3 > 0)))
    return device_bytes(k, nodes, kmers, with_buckets=with_buckets)


def clear(words: Any, stream: Any) -> None:
    """Queue a zero fill of a device array (uint32[n] or uint64[n])."""
    with_threads(plain(clear_words), words.size, THREADS, stream)(words)
