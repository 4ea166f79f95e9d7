"""The Levenshtein Tree Bitmap on the GPU: from a snapshot and a chunk to bitmaps per symbol.

``launch`` queues a chunk on a stream, over buffers that the caller owns (gpu/ltb/stream.py). The
bitmaps are those of trie/ltb (thesis Fig. 31).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.card.cuda_errors import CudaEngineError
from gpu.card.intrinsics import cuda
from gpu.card.launch import made, plain, with_threads
from gpu.card.memory import Workspace
from gpu.card.packing import MAX_SYMBOLS, ChunkTooLargeError
from gpu.exact.device_tree import DeviceNodes, clear
from gpu.ltb import sliced, sweeping
from gpu.ltb.sweeping import FIRST_OF_READ, KERNELS, kernel, resident_blocks
from trie.codes import check_distance
from trie.ltb import overlap_of
from trie.snapshots.tree_bitmap import TreeBitmap
from trie.windows import check_batch

ACTIVE_BYTES = 4 << 30
"""Memory for the active bitmaps; it limits the blocks of the thesis's kernels."""

PART = 1 << 22  # symbols that a thread packs at a time
SHORTEST_PIECE = 64  # fewest symbols in a block's piece, as it begins up to 34 symbols early

SLICED_WARPS = 4 * 528
"""Warps of ``ltb-sliced`` for which the trie is split: a few per GPU scheduler."""


class TooManyQueueNodesError(CudaEngineError):
    """The snapshot has more trie-nodes than a queue entry can name."""

    def __init__(self, nodes: int) -> None:
        super().__init__(
            f"the dictionary has {nodes} trie-nodes, 'ltb-queue' can name {sweeping.NODES}"
        )


class DeviceLtb(DeviceNodes):
    """The arrays of a snapshot in the memory of the current CUDA device, queued on ``stream``."""

    def __init__(self, tree: TreeBitmap, stream: Any = 0) -> None:
        super().__init__(tree, stream)
        self._tasks = [_tasks(tree, level, stream) for level in range(3) if 3 * level < self.k]

    def tasks(self, groups: int) -> tuple[int, int, Any]:
        """How ``ltb-sliced`` splits the trie for that number of groups of 32 segments.

        Returns the first level with enough warps, its first node, and uint32[T], the paths to its
        nodes.
        """
        level = 0
        while level + 1 < len(self._tasks):
            if groups * (self._tasks[level][1].size + 1) >= SLICED_WARPS:
                break
            level += 1
        first, paths = self._tasks[level]
        return level, first, paths


def _tasks(tree: TreeBitmap, level: int, stream: Any) -> tuple[int, Any]:
    """The first node of a level and the paths to its nodes, none for level 0."""
    paths = np.zeros(1, dtype=np.uint32)
    offsets = tree.level_offsets.astype(np.int64)
    for up in range(level):
        exmaps = tree.exmaps[offsets[up] : offsets[up + 1]]
        bits = np.unpackbits(exmaps.view(np.uint8), bitorder="little").reshape(-1, 64)
        node, group = np.nonzero(bits)
        paths = (paths[node] << np.uint32(6)) | group.astype(np.uint32)
    if level == 0:
        paths = paths[:0]
    return int(offsets[level]), cuda.to_device(paths, stream=stream)


class LtbBuffers:
    """Device memory for one chunk of at most ``max_symbols``, reused from chunk to chunk.

    symbols: uint8, as laid out in gpu/ltb/sweeping.py. matches, mismatches: uint32 bitmaps.
    scratch: bit planes, or active bitmaps.
    """

    def __init__(self, max_symbols: int) -> None:
        if max_symbols > MAX_SYMBOLS:
            message = f"a chunk of {max_symbols} symbols, at most {MAX_SYMBOLS} fit"
            raise ChunkTooLargeError(message)
        self.max_symbols = max_symbols
        self.symbols = cuda.device_array(max_symbols, np.uint8)
        self.matches = cuda.device_array(max_symbols, np.uint32)
        self.mismatches = cuda.device_array(max_symbols, np.uint32)
        self.scratch = Workspace()


def pack_symbols(bases: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.uint8]:
    """The symbols of a chunk as the kernels read them, uint8[n]: code; bit 3: first in a read.

    Raises BatchShapeError for offsets that do not describe the bases.
    """
    bases, offsets = check_batch(bases, offsets)
    symbols = np.empty_like(bases)
    for part in packing(bases, offsets, 0, bases.size, symbols):
        part()
    return symbols


def packing(
    bases: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    origin: int,
    stop: int,
    out: NDArray[np.uint8],
) -> list[Callable[[], None]]:
    """The work of packing the symbols [origin, stop) of a batch, in parts for several threads.

    out: uint8[stop - origin or more], such as pinned memory, receives them.
    """

    def pack(first: int, last: int) -> None:
        symbols = out[first - origin : last - origin]
        symbols[:] = bases[first:last]
        reads = offsets[np.searchsorted(offsets, first) : np.searchsorted(offsets, last)]
        symbols[reads - first] |= np.uint8(FIRST_OF_READ)
        if first == origin:
            symbols[0] |= np.uint8(FIRST_OF_READ)

    return [partial(pack, first, min(first + PART, stop)) for first in range(origin, stop, PART)]


def launch(
    tree: DeviceLtb,
    buffers: LtbBuffers,
    symbols: int,
    distance: int,
    *,
    method: str = "ltb-sliced",
    stream: Any = 0,
    active_bytes: int = ACTIVE_BYTES,
) -> None:
    """Queue the kernel that matches the chunk of ``symbols`` symbols in the buffers.

    method: one of KERNELS. active_bytes: memory for the active bitmaps of the thesis's kernels; one
    block always runs. Afterwards ``buffers.matches`` and ``buffers.mismatches`` hold the bitmaps of
    the symbols. Raises ValueError for an invalid distance, TooManyQueueNodesError if the trie is
    too large for ``ltb-queue``.
    """
    check_distance(distance, tree.k)
    assert method in KERNELS
    assert symbols <= buffers.max_symbols
    if method == "ltb-queue" and tree.node_count > sweeping.NODES:
        raise TooManyQueueNodesError(tree.node_count)
    if symbols == 0:
        return
    matches = buffers.matches[:symbols]
    mismatches = buffers.mismatches[:symbols]
    clear(matches, stream)
    clear(mismatches, stream)
    if method == "ltb-sliced":
        _sliced(tree, buffers, symbols, distance, stream)
        return
    nodes = (distance + 1) * tree.node_count
    fit = max(1, active_bytes // (4 * nodes))
    blocks = max(1, min(resident_blocks(method), fit, -(-symbols // SHORTEST_PIECE)))
    piece = -(-symbols // blocks)
    blocks = -(-symbols // piece)
    active = buffers.scratch.array("active", blocks * nodes, np.uint32)[: blocks * nodes]
    run, threads = kernel(method)
    with_threads(run, blocks * threads, threads, stream)(
        buffers.symbols[:symbols], np.uint32(tree.k), np.uint32(distance), np.uint32(piece),
        tree.level_offsets, tree.inmaps, tree.exmaps, tree.prefix_sums, active, matches,
        mismatches,
    )  # fmt: skip


def _sliced(tree: DeviceLtb, buffers: LtbBuffers, symbols: int, distance: int, stream: Any) -> None:
    overlap = overlap_of(tree.k, distance)
    useful = sliced.SYMBOLS - overlap
    segments = -(-symbols // useful)
    planes = buffers.scratch.array("planes", 4 * segments, np.uint64)[: 4 * segments]
    with_threads(plain(sliced.planes), segments, sliced.THREADS, stream)(
        buffers.symbols[:symbols], np.uint32(useful), np.uint32(overlap), np.uint32(segments),
        planes,
    )  # fmt: skip
    groups = -(-segments // 32)
    level, first_node, paths = tree.tasks(groups)
    threads = 32 * groups * (paths.size + 1)
    with_threads(made(sliced.sliced, distance + 1), threads, sliced.THREADS, stream)(
        planes, np.uint32(segments), np.uint32(tree.k), np.uint32(useful), np.uint32(symbols),
        np.uint32(level), paths, tree.nodes, np.uint32(first_node), buffers.matches[:symbols],
        buffers.mismatches[:symbols],
    )  # fmt: skip
