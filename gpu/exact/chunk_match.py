"""Queue the kernels that match one chunk of the stream against a snapshot on the GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu.card.intrinsics import cuda
from gpu.card.launch import made, plain, with_threads
from gpu.card.memory import Workspace
from gpu.card.packing import packed_sizes
from gpu.exact import bucket_table, symbol_kernels, walk
from gpu.exact.device_tree import WORD_NODES, DeviceTree, clear
from trie.strands import Strands

KERNELS = ("buckets", "walk", "shuffle", "naive")  # names of the methods

NAIVE_ACTIVE_BYTES = 1 << 30
"""Memory for the active inmaps of the naive kernel; it limits the number of blocks."""

NAIVE_BLOCKS = 528
SHUFFLE_PIECES = (64, 1024)  # the shortest and the longest piece of a sub-warp, in symbols

SHUFFLE_SUB_WARPS = 1 << 14
"""Sub-warps that fill a large GPU; short chunks are cut into shorter pieces to have as many."""

CACHED_LENGTHS = 64  # number of chunk lengths whose buffer views are cached
Arrays = tuple[Any, Any, Any]  # bases, starts and matches of a chunk on the GPU


class TooManyWordNodesError(ValueError):
    """A snapshot with more trie-nodes than an event word can name."""

    def __init__(self, node_count: int) -> None:
        super().__init__(
            f"the dictionary has {node_count} trie-nodes, event words can name {WORD_NODES}"
        )


class ChunkBuffers:
    """Device memory for one chunk of at most ``max_symbols``, reused from chunk to chunk.

    bases, starts, matches: uint32, as in gpu/card/packing.py. words: uint64[word_capacity] event
    words, counter: uint32[1], their number (those beyond the capacity are counted but not written).
    scratch: for the kernels that need more.
    """

    def __init__(self, max_symbols: int, *, word_capacity: int = 0) -> None:
        base_words, start_words = packed_sizes(max_symbols)
        self.max_symbols = max_symbols
        self.bases = cuda.device_array(base_words, np.uint32)
        self.starts = cuda.device_array(start_words, np.uint32)
        self.matches = cuda.device_array(start_words, np.uint32)
        self.words = cuda.device_array(word_capacity, np.uint64)
        self.counter = cuda.device_array(1, np.uint32)
        self.scratch = Workspace()
        self._views: dict[int, Arrays] = {}

    def views(self, symbols: int) -> Arrays:
        """The part of each array that a chunk of that length uses; cached, as slicing is slow."""
        found = self._views.get(symbols)
        if found is None:
            if len(self._views) == CACHED_LENGTHS:
                self._views.clear()
            base_words, start_words = packed_sizes(symbols)
            found = self._views[symbols] = (
                self.bases[:base_words],
                self.starts[:start_words],
                self.matches[:start_words],
            )
        return found


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
    """Queue the kernels that match the chunk of ``symbols`` symbols in the buffers.

    ``method`` is one of KERNELS or ``default``, the fastest for this k. With words ``buckets``
    means ``walk``, since only the trie knows depths and trie-nodes. Afterwards ``buffers.matches``
    holds a bit per window and, with ``with_words``, ``buffers.words`` and ``buffers.counter`` hold
    the event words in no particular order. With strands ``both`` the snapshot holds both
    orientations and windows are matched as given.

    Raises TooManyWordNodesError for words of a snapshot above 2**27 nodes.
    """
    if method == "default":
        method = bucket_table.default_method(tree.k)
    assert method in KERNELS
    assert symbols <= buffers.max_symbols
    if with_words:
        if tree.node_count > WORD_NODES:
            raise TooManyWordNodesError(tree.node_count)
        clear(buffers.counter, stream)
    if symbols == 0:
        return
    chunk = _Chunk(tree, buffers, symbols, with_words, stream)
    arrays = buffers.views(symbols)
    canonical = strands == "canonical"
    if method == "buckets" and not with_words:
        chunk.look_up(arrays, canonical)
    elif method in ("walk", "buckets"):
        chunk.walk(arrays, canonical)
    elif method == "shuffle":
        chunk.shuffle(arrays, canonical)
    else:
        clear(arrays[2], stream)
        chunk.naive(arrays, canonical)


@dataclass(frozen=True, slots=True)
class _Chunk:
    """A chunk in buffers, and the launches for it."""

    tree: DeviceTree
    buffers: ChunkBuffers
    symbols: int
    with_words: bool
    stream: Any

    def look_up(self, arrays: Arrays, canonical: bool) -> None:
        bases, starts, matches = arrays
        tree = self.tree
        assert tree.shape is not None, "sent with its bucket table"
        run = made(bucket_table.lookup, tree.shape, canonical)
        with_threads(run, 32 * starts.size, bucket_table.THREADS, self.stream)(
            bases, starts, tree.table, tree.jump, tree.nodes, tree.leaves, matches
        )

    def walk(self, arrays: Arrays, canonical: bool) -> None:
        bases, starts, matches = arrays
        tree, buffers = self.tree, self.buffers
        make = walk.walk_words if self.with_words else walk.walk_bits
        kernel = made(make, tree.k, canonical)
        run = with_threads(kernel, 32 * starts.size, walk.THREADS, self.stream)
        if self.with_words:
            run(bases, starts, tree.nodes, matches, buffers.words, buffers.counter)
        else:
            run(bases, starts, tree.jump, tree.nodes, tree.leaves, matches)

    def shuffle(self, arrays: Arrays, canonical: bool) -> None:
        if not canonical:
            self._shuffle(arrays, 0)
            return
        forward, mirrored = self._split(arrays)
        there = self._scratch("mirrored_matches", self.buffers.starts)[: arrays[1].size]
        self._shuffle(forward, 0)
        self._shuffle((*mirrored[:2], there), self.symbols)
        with_threads(
            plain(symbol_kernels.merge), 32 * there.size, symbol_kernels.ORIENT_THREADS, self.stream
        )(there, np.uint32(self.symbols), np.uint32(self.tree.k), arrays[2])

    def naive(self, arrays: Arrays, canonical: bool) -> None:
        if not canonical:
            self._naive(arrays, 0)
            return
        forward, mirrored = self._split(arrays)
        self._naive(forward, 0)
        self._naive(mirrored, self.symbols)

    def _split(self, arrays: Arrays) -> tuple[Arrays, Arrays]:
        """The chunk forward and mirrored (``symbol_kernels``), with the matches of ``arrays``."""
        bases, starts, matches = arrays
        forward = self._scratch("forward", self.buffers.starts)[: starts.size]
        mirrored = self._scratch("mirrored", self.buffers.starts)[: starts.size]
        mirrored_bases = self._scratch("mirrored_bases", self.buffers.bases)[: bases.size]
        threads = symbol_kernels.ORIENT_THREADS
        with_threads(plain(symbol_kernels.split), 32 * starts.size, threads, self.stream)(
            bases, starts, np.uint32(self.symbols), np.uint32(self.tree.k), forward, mirrored_bases,
            mirrored,
        )  # fmt: skip
        return (bases, forward, matches), (mirrored_bases, mirrored, matches)

    def _scratch(self, name: str, like: Any) -> Any:
        return self.buffers.scratch.array(name, like.size, np.uint32)

    def _shuffle(self, arrays: Arrays, mirror: int) -> None:
        bases, starts, matches = arrays
        tree, buffers, symbols = self.tree, self.buffers, self.symbols
        piece = -(-symbols // (32 * SHUFFLE_SUB_WARPS)) * 32
        piece = min(max(piece, SHUFFLE_PIECES[0]), SHUFFLE_PIECES[1])
        assert piece % 32 == 0
        threads = -(-symbols // piece) * symbol_kernels.sub_warp(tree.k)
        run = made(symbol_kernels.shuffle, tree.k, self.with_words)
        with_threads(run, threads, symbol_kernels.SHUFFLE_THREADS, self.stream)(
            bases, starts, np.uint32(symbols), np.uint32(mirror), np.uint32(piece), tree.nodes,
            matches, buffers.words, buffers.counter,
        )  # fmt: skip

    def _naive(self, arrays: Arrays, mirror: int) -> None:
        bases, starts, matches = arrays
        tree, buffers, symbols = self.tree, self.buffers, self.symbols
        fit = max(1, NAIVE_ACTIVE_BYTES // (4 * tree.node_count))
        blocks = min(NAIVE_BLOCKS, fit, -(-symbols // 32))
        states = blocks * tree.node_count
        active = buffers.scratch.array("active", states, np.uint32)[:states]
        clear(active, self.stream)
        words = buffers.words if self.with_words else buffers.words[:0]
        threads = symbol_kernels.NAIVE_THREADS
        with_threads(plain(symbol_kernels.naive), blocks * threads, threads, self.stream)(
            bases, starts, np.uint32(symbols), np.uint32(tree.k), np.uint32(mirror),
            np.uint32(-(-symbols // blocks)), tree.level_offsets, tree.inmaps, tree.exmaps,
            tree.prefix_sums, active.reshape(blocks, tree.node_count), matches, words,
            buffers.counter,
        )  # fmt: skip
