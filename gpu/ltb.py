"""The Levenshtein Tree Bitmap on the card: a snapshot and a chunk in, bitmaps a symbol out.

``launch`` queues a chunk on a stream, over buffers that the caller keeps; ``match_chunk`` is the
plain form: upload, launch, download, wait. The bitmaps are those of trie/ltb.py, and their words
(thesis Fig. 31) are made by trie/ltb_words.py.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.device_tree import clear
from gpu.intrinsics import cuda
from gpu.kernels import ltb
from gpu.kernels.ltb import efficient, naive, queue
from gpu.packing import MAX_SYMBOLS, ChunkTooLargeError
from trie.ltb import check_distance
from trie.tree_bitmap import TreeBitmap
from trie.windows import check_batch

KERNELS = ("ltb-naive", "ltb-efficient", "ltb-queue")
"""Names of the kernels, in the order of the thesis."""

ACTIVE_BYTES = 4 << 30
"""Memory for the active bitmaps: it limits how many blocks run."""

BLOCKS = 1056
"""Blocks at most: as many as a card of 132 multiprocessors holds at 256 threads each."""

SHORTEST_PIECE = 64
"""Symbols of a block's piece at least, for it begins up to 34 symbols early."""


class TooManyQueueNodesError(ValueError):
    """A snapshot with more trie-nodes than a queue's entry can name."""

    def __init__(self, nodes: int) -> None:
        super().__init__(
            f"the dictionary has {nodes} trie-nodes, 'ltb-queue' can name {queue.NODES}"
        )


class DeviceLtb:
    """The arrays of a snapshot in the memory of the current CUDA device, queued on ``stream``."""

    def __init__(self, tree: TreeBitmap, stream: Any = 0) -> None:
        self.k = tree.k
        self.node_count = tree.node_count
        self.level_offsets = cuda.to_device(tree.level_offsets.astype(np.uint32), stream=stream)
        self.inmaps = cuda.to_device(tree.inmaps, stream=stream)
        self.exmaps = cuda.to_device(tree.exmaps, stream=stream)
        self.prefix_sums = cuda.to_device(tree.prefix_sums, stream=stream)


class LtbBuffers:
    """Device memory for one chunk of at most ``max_symbols``, reused from chunk to chunk.

    symbols: uint8, as gpu/kernels/ltb draws them. matches, mismatches: uint32 bitmaps.
    """

    def __init__(self, max_symbols: int, stream: Any = 0) -> None:
        if max_symbols > MAX_SYMBOLS:
            message = f"a chunk of {max_symbols} symbols, at most {MAX_SYMBOLS} fit"
            raise ChunkTooLargeError(message)
        self.max_symbols = max_symbols
        self.symbols = cuda.device_array(max_symbols, np.uint8, stream=stream)
        self.matches = cuda.device_array(max_symbols, np.uint32, stream=stream)
        self.mismatches = cuda.device_array(max_symbols, np.uint32, stream=stream)
        self._active: Any = None

    def active(self, words: int) -> Any:
        """uint32[words] for the active bitmaps, which hold anything."""
        if self._active is None or self._active.size < words:
            self._active = None
            self._active = cuda.device_array(words, np.uint32)
        return self._active


def pack_symbols(bases: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.uint8]:
    """The symbols of a chunk as the kernels read them, uint8[n]: code, and bit 3 a read's first.

    Raises BatchShapeError for offsets that do not describe the bases.
    """
    bases, offsets = check_batch(bases, offsets)
    symbols = bases.copy()
    starts = offsets[:-1]
    symbols[starts[starts < bases.size]] |= np.uint8(ltb.FIRST_OF_READ)
    return symbols


def sources() -> dict[str, ltb.Source]:
    """Every kernel by name: the plain function and its argument types."""
    return {
        "ltb-naive": (naive.naive, ltb.signature()),
        "ltb-efficient": (efficient.efficient, ltb.signature()),
        "ltb-queue": (queue.queue(queue.THREADS, queue.QUEUE), ltb.signature()),
    }


def threads_of(method: str) -> int:
    """Threads a block of the kernel of that name."""
    modules: dict[str, Any] = {
        "ltb-naive": naive, "ltb-efficient": efficient, "ltb-queue": queue,
    }  # fmt: skip
    return int(modules[method].THREADS)


@cache
def _compiled(method: str, threads: int, entries: int) -> Any:
    if method == "ltb-queue":
        return cuda.jit(queue.queue(threads, entries))
    return cuda.jit(sources()[method][0])


def grid_of(tree: DeviceLtb, symbols: int, distance: int) -> tuple[int, int]:
    """Blocks for a chunk, and symbols of a block's piece."""
    fit = max(1, ACTIVE_BYTES // (4 * (distance + 1) * tree.node_count))
    blocks = max(1, min(BLOCKS, fit, -(-symbols // SHORTEST_PIECE)))
    piece = -(-symbols // blocks)
    return -(-symbols // piece), piece


def launch(
    tree: DeviceLtb,
    buffers: LtbBuffers,
    symbols: int,
    distance: int,
    *,
    method: str = "ltb-efficient",
    stream: Any = 0,
) -> None:
    """Queue the kernel that matches a chunk of ``symbols`` symbols which the buffers hold.

    Afterwards ``buffers.matches`` and ``buffers.mismatches`` hold the bitmaps of its symbols.
    Raises ValueError for an unknown method or a chunk larger than the buffers, DistanceError as
    trie/ltb.py, TooManyQueueNodesError if the method is ``ltb-queue`` and the trie too large.
    """
    check_distance(distance, tree.k)
    if method not in KERNELS:
        message = f"no kernel is called {method!r}: {', '.join(KERNELS)}"
        raise ValueError(message)
    if symbols > buffers.max_symbols:
        message = f"a chunk of {symbols} symbols, the buffers hold {buffers.max_symbols}"
        raise ValueError(message)
    if method == "ltb-queue" and tree.node_count > queue.NODES:
        raise TooManyQueueNodesError(tree.node_count)
    if symbols == 0:
        return
    matches = buffers.matches[:symbols]
    mismatches = buffers.mismatches[:symbols]
    clear(matches, stream)
    clear(mismatches, stream)
    threads = threads_of(method)
    assert threads % 32 == 0
    grid, piece = grid_of(tree, symbols, distance)
    active = buffers.active(grid * (distance + 1) * tree.node_count)
    _compiled(method, threads, queue.QUEUE)[grid, threads, stream](
        buffers.symbols[:symbols], np.uint32(tree.k), np.uint32(distance), np.uint32(piece),
        tree.level_offsets, tree.inmaps, tree.exmaps, tree.prefix_sums, active, matches,
        mismatches,
    )  # fmt: skip


def match_chunk(
    tree: DeviceLtb,
    bases: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    distance: int,
    *,
    method: str = "ltb-efficient",
) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Match and mismatch bitmaps of a chunk, as ``trie.ltb.approximate`` gives them; waits.

    ``bases`` uint8[n] (codes, 4 = gap), ``offsets`` int64[reads + 1]. Errors as ``launch``.
    """
    symbols = pack_symbols(bases, offsets)
    buffers = LtbBuffers(symbols.size)
    if symbols.size:
        buffers.symbols.copy_to_device(symbols)
    launch(tree, buffers, symbols.size, distance, method=method)
    return buffers.matches.copy_to_host(), buffers.mismatches.copy_to_host()
