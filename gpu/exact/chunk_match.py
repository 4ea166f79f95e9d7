"""Match one chunk of the stream against a snapshot on the card, with any of the kernels.

``launch`` queues the kernels of one chunk on a stream, over buffers that the caller keeps; the
two-stream engine builds on it. ``match_chunk`` is the plain form: upload, launch, download, wait.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.card.intrinsics import cuda
from gpu.card.packing import PackedChunk, packed_sizes, unpack_events
from gpu.exact import bucket_table as buckets
from gpu.exact import naive, orient, shuffle, walk
from gpu.exact.device_tree import WORD_NODES, DeviceTree, clear
from gpu.exact.kernels import KERNELS, bucket_kernel, default_method, kernel
from trie.strands import Strands

NAIVE_ACTIVE_BYTES = 1 << 30
"""Memory for the active inmaps of the naive kernel: it limits how many blocks run."""

NAIVE_BLOCKS = 528
SHUFFLE_PIECES = (64, 1024)
"""The shortest and the longest piece of a sub-warp, in symbols."""

SHUFFLE_SUB_WARPS = 1 << 14
"""Sub-warps that fill a large card; smaller chunks are cut into shorter pieces for them."""


# lengths of chunks whose views of the buffers are kept
_REMEMBERED = 64


class MatchBufferFullError(RuntimeError):
    """More event words than the buffer holds: ``needed`` of them, ``capacity`` fit."""

    def __init__(self, needed: int, capacity: int) -> None:
        self.needed = needed
        self.capacity = capacity
        super().__init__(f"{needed} event words, the match buffer holds {capacity}")


class TooManyWordNodesError(ValueError):
    """A snapshot with more trie-nodes than an event word can name."""

    def __init__(self, node_count: int) -> None:
        super().__init__(
            f"the dictionary has {node_count} trie-nodes, event words can name {WORD_NODES}"
        )


class ChunkBuffers:
    """Device memory for one chunk of at most ``max_symbols``, reused from chunk to chunk.

    bases, starts, matches: uint32, as in gpu/card/packing.py. words: uint64[word_capacity] event
    words, counter: uint32[1], how many there are (more than the capacity: the rest was not
    written).
    """

    def __init__(self, max_symbols: int, *, word_capacity: int = 0, stream: Any = 0) -> None:
        base_words, start_words = packed_sizes(max_symbols)
        self.max_symbols = max_symbols
        self.bases = cuda.device_array(base_words, np.uint32, stream=stream)
        self.starts = cuda.device_array(start_words, np.uint32, stream=stream)
        self.matches = cuda.device_array(start_words, np.uint32, stream=stream)
        self.words = cuda.device_array(word_capacity, np.uint64, stream=stream)
        self.counter = cuda.device_array(1, np.uint32, stream=stream)
        self._scratch: dict[str, Any] = {}
        self._views: dict[int, tuple[Any, Any, Any]] = {}

    def views(self, symbols: int) -> tuple[Any, Any, Any]:
        """bases, starts and matches of a chunk of so many symbols; kept, as slicing is slow."""
        found = self._views.get(symbols)
        if found is None:
            if len(self._views) == _REMEMBERED:
                self._views.clear()
            base_words, start_words = packed_sizes(symbols)
            found = self._views[symbols] = (
                self.bases[:base_words],
                self.starts[:start_words],
                self.matches[:start_words],
            )
        return found

    def array(self, name: str, size: int) -> Any:
        """uint32[size] for the kernels that need more than the chunk; made when first asked for."""
        found = self._scratch.get(name)
        if found is None or found.size < size:
            found = self._scratch[name] = cuda.device_array(size, np.uint32)
        return found[:size]


@dataclass(frozen=True, slots=True)
class ChunkMatches:
    """What became of the windows of a chunk.

    matches: uint32[ceil(symbols / 32)], bit s set where the window that starts at s matches.
    words: uint64, an event word (thesis Fig. 11) a window, by window start; None if not asked for.
    """

    chunk: PackedChunk
    matches: NDArray[np.uint32]
    words: NDArray[np.uint64] | None

    def events(self) -> NDArray[np.uint8]:
        """uint8[symbols]: at a window's start 1 for a match and 2 for a mismatch, 0 elsewhere."""
        return unpack_events(self.chunk.starts, self.matches, self.chunk.symbols)


def launch(
    tree: DeviceTree,
    buffers: ChunkBuffers,
    symbols: int,
    *,
    method: str = "default",
    strands: Strands = "canonical",
    with_words: bool = False,
    stream: Any = 0,
) -> None:
    """Queue the kernels that match a chunk of ``symbols`` symbols which the buffers hold.

    ``method`` is one of the kernels or ``default``, the fastest for this k; where words are wanted
    ``buckets`` stands for ``walk``, since only the trie knows depths and trie-nodes. Afterwards
    ``buffers.matches`` holds a bit a window and, with ``with_words``, ``buffers.words`` and
    ``buffers.counter`` the event words in no particular order. With strands ``both`` the snapshot
    holds both orientations and windows are walked as they stand.

    Raises ValueError for an unknown method, a chunk larger than the buffers or a missing bucket
    table, TooManyWordNodesError if words are wanted of a snapshot above 2**27 nodes.
    """
    if method == "default":
        method = default_method(tree.k)
    if method not in KERNELS:
        message = f"no kernel is called {method!r}: {', '.join(KERNELS)}"
        raise ValueError(message)
    if symbols > buffers.max_symbols:
        message = f"a chunk of {symbols} symbols, the buffers hold {buffers.max_symbols}"
        raise ValueError(message)
    if with_words:
        if tree.node_count > WORD_NODES:
            raise TooManyWordNodesError(tree.node_count)
        clear(buffers.counter, stream)
    if symbols == 0:
        return
    canonical = strands == "canonical"
    base_words, start_words = packed_sizes(symbols)
    bases, starts, matches = buffers.views(symbols)
    if method == "buckets" and not with_words:
        _buckets(tree, (bases, starts, matches), canonical, stream)
        return
    if method in ("walk", "buckets"):
        _walk(tree, buffers, (bases, starts, matches), canonical, with_words, stream)
        return
    step = _shuffle if method == "shuffle" else _naive
    if method == "naive":
        clear(matches, stream)
    if not canonical:
        step(tree, buffers, (bases, starts, matches), symbols, 0, with_words, stream)
        return
    forward = buffers.array("forward", buffers.starts.size)[:start_words]
    mirrored_bases = buffers.array("mirrored_bases", buffers.bases.size)[:base_words]
    mirrored = buffers.array("mirrored", buffers.starts.size)[:start_words]
    grid = -(-32 * start_words // orient.THREADS)
    kernel("split")[grid, orient.THREADS, stream](
        bases, starts, np.uint32(symbols), np.uint32(tree.k), forward, mirrored_bases, mirrored
    )
    step(tree, buffers, (bases, forward, matches), symbols, 0, with_words, stream)
    back = (mirrored_bases, mirrored, matches)
    if method == "shuffle":
        back = (*back[:2], buffers.array("mirrored_matches", buffers.starts.size)[:start_words])
    step(tree, buffers, back, symbols, symbols, with_words, stream)
    if method == "shuffle":
        kernel("merge")[grid, orient.THREADS, stream](
            back[2], np.uint32(symbols), np.uint32(tree.k), matches
        )


def _buckets(tree: DeviceTree, arrays: tuple[Any, Any, Any], canonical: bool, stream: Any) -> None:
    if tree.shape is None:
        message = "this snapshot was sent to the card without its bucket table"
        raise ValueError(message)
    bases, starts, matches = arrays
    assert buckets.THREADS % 32 == 0
    grid = -(-32 * starts.size // buckets.THREADS)
    name = "buckets_canonical" if canonical else "buckets"
    bucket_kernel(name, tree.shape)[grid, buckets.THREADS, stream](
        bases, starts, tree.table, tree.jump, tree.nodes, tree.leaves, matches
    )


def _walk(
    tree: DeviceTree,
    buffers: ChunkBuffers,
    arrays: tuple[Any, Any, Any],
    canonical: bool,
    with_words: bool,
    stream: Any,
) -> None:
    bases, starts, matches = arrays
    name = "walk_canonical" if canonical else "walk"
    assert walk.THREADS % 32 == 0
    grid = -(-32 * starts.size // walk.THREADS)
    if with_words:
        kernel(f"{name}_words", tree.k)[grid, walk.THREADS, stream](
            bases, starts, tree.nodes, matches, buffers.words, buffers.counter
        )
    else:
        kernel(name, tree.k)[grid, walk.THREADS, stream](
            bases, starts, tree.jump, tree.nodes, tree.leaves, matches
        )


def _shuffle(
    tree: DeviceTree,
    buffers: ChunkBuffers,
    arrays: tuple[Any, Any, Any],
    symbols: int,
    mirror: int,
    with_words: bool,
    stream: Any,
) -> None:
    piece = -(-symbols // (32 * SHUFFLE_SUB_WARPS)) * 32
    piece = min(max(piece, SHUFFLE_PIECES[0]), SHUFFLE_PIECES[1])
    assert piece % 32 == 0
    assert shuffle.THREADS % 32 == 0
    sub_warps = -(-symbols // piece)
    grid = -(-sub_warps * shuffle.sub_warp(tree.k) // shuffle.THREADS)
    kernel("shuffle_words" if with_words else "shuffle", tree.k)[grid, shuffle.THREADS, stream](
        arrays[0], arrays[1], np.uint32(symbols), np.uint32(mirror), np.uint32(piece), tree.nodes,
        arrays[2], buffers.words, buffers.counter,
    )  # fmt: skip


def _naive(
    tree: DeviceTree,
    buffers: ChunkBuffers,
    arrays: tuple[Any, Any, Any],
    symbols: int,
    mirror: int,
    with_words: bool,
    stream: Any,
) -> None:
    fit = max(1, NAIVE_ACTIVE_BYTES // (4 * tree.node_count))
    grid = min(NAIVE_BLOCKS, fit, -(-symbols // 32))
    piece = -(-symbols // grid)
    words = buffers.words if with_words else buffers.words[:0]
    active = buffers.array("active", grid * tree.node_count)
    clear(active, stream)
    kernel("naive")[grid, naive.THREADS, stream](
        arrays[0], arrays[1], np.uint32(symbols), np.uint32(tree.k), np.uint32(mirror),
        np.uint32(piece), tree.level_offsets, tree.inmaps, tree.exmaps, tree.prefix_sums,
        active.reshape(grid, tree.node_count), arrays[2], words, buffers.counter,
    )  # fmt: skip


def match_chunk(
    tree: DeviceTree,
    chunk: PackedChunk,
    *,
    method: str = "default",
    strands: Strands = "canonical",
    with_words: bool = False,
    word_capacity: int | None = None,
    max_words: int | None = None,
) -> ChunkMatches:
    """Match a chunk and wait for the result.

    with_words: event words too. word_capacity: words that the match buffer holds at first, by
    default one a window. A buffer that fills is replaced by one of the size that the counter asks
    for and the chunk is matched again, unless that is above ``max_words``: then
    MatchBufferFullError says how many words there are. Other errors as in ``launch``; ValueError
    too for a chunk packed for another k.
    """
    if chunk.k != tree.k:
        message = f"the chunk is packed for k = {chunk.k}, the dictionary has k = {tree.k}"
        raise ValueError(message)
    capacity = 0
    if with_words:
        capacity = chunk.windows() if word_capacity is None else word_capacity
    while True:
        buffers = ChunkBuffers(chunk.symbols, word_capacity=capacity)
        if chunk.symbols:
            buffers.bases.copy_to_device(chunk.bases)
            buffers.starts.copy_to_device(chunk.starts)
        launch(tree, buffers, chunk.symbols, method=method, strands=strands, with_words=with_words)
        needed = int(buffers.counter.copy_to_host()[0]) if with_words else 0
        if needed <= capacity:
            break
        if max_words is not None and needed > max_words:
            raise MatchBufferFullError(needed, max_words)
        capacity = needed
    matches = buffers.matches.copy_to_host()
    if not with_words:
        return ChunkMatches(chunk, matches, None)
    words = buffers.words.copy_to_host()[:needed]
    starts = word_starts(words)
    return ChunkMatches(chunk, matches, words[np.argsort(starts, kind="stable")])


def word_starts(words: NDArray[np.uint64]) -> NDArray[np.int64]:
    """The window start in the chunk of each event word: index - depth + 1."""
    index = (words >> np.uint64(32)) & np.uint64(2**31 - 1)
    return (index + np.uint64(1) - (words & np.uint64(31))).astype(np.int64)
