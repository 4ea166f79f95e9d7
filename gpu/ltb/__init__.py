"""The Levenshtein Tree Bitmap on GPUs: from a snapshot and a batch to bitmaps per symbol.

The bitmaps are those of trie/ltb (thesis Fig. 31). Chunks go through one of the kernels on one or
more devices (gpu/card/streams). A chunk begins k + D - 1 symbols before the first end that it
answers (thesis 3.3.5), so results do not depend on where chunks are cut. Per symbol, 1 byte goes to
the GPU and 8 come back.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from gpu.card import streams
from gpu.card.cuda_errors import CudaEngineError, translated_driver_errors
from gpu.card.intrinsics import cuda
from gpu.card.kernel_cache import made, plain, with_threads
from gpu.card.memory import Budget, Workspace, fetch, send
from gpu.card.packing import MAX_SYMBOLS, ChunkTooLargeError
from gpu.exact.device_tree import DeviceNodes, clear
from gpu.exact.expand import copy_into
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
            raise ChunkTooLargeError(f"a chunk of {max_symbols} symbols, at most {MAX_SYMBOLS} fit")
        self.max_symbols = max_symbols
        self.symbols = cuda.device_array(max_symbols, np.uint8)
        self.matches = cuda.device_array(max_symbols, np.uint32)
        self.mismatches = cuda.device_array(max_symbols, np.uint32)
        self.scratch = Workspace()


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


MAX_CHUNK = 1 << 25
"""Symbols of the largest chunk: it bounds a stream's buffers, 0.4 GB on the GPU, 0.3 pinned."""

MOST_AHEAD = 4  # most threads that pack, which is little work
_SYMBOL_BYTES = 11  # per symbol on the GPU: its code, two bitmaps, and the planes of ``ltb-sliced``
Bitmaps = NDArray[np.uint32]
Symbols = NDArray[np.uint8]


def _packing(chunk: streams.BatchChunk, symbols: Symbols) -> list[Callable[[], None]]:
    return packing(chunk.bases, chunk.offsets, chunk.origin, chunk.stop, symbols)


class _LtbSlot(streams.StreamSlot):
    """A stream, its chunk buffer and its result buffers."""

    def __init__(self, size: int, number: int, budget: Budget) -> None:
        super().__init__(number)
        budget.take("the buffers of a chunk", _SYMBOL_BYTES * size)
        self.buffers = LtbBuffers(size)
        self.matches = cuda.pinned_array(size, np.uint32)
        self.mismatches = cuda.pinned_array(size, np.uint32)


class _LtbCard(streams.StreamCard[_LtbSlot]):
    """A device with the snapshot in use."""

    def __init__(self, size: int, distance: int, method: str, share: streams.CardShare) -> None:
        super().__init__(share, partial(_LtbSlot, size))
        self.distance = distance
        self.method = method
        self.tree: DeviceLtb | None = None
        self.active_bytes = 0
        self._source: TreeBitmap | None = None

    def load(self, tree: TreeBitmap) -> None:
        """Load a snapshot and compute how much a slot may use for active bitmaps."""
        with self.active():
            if self._source is not tree:
                if self._source is not None:
                    self.budget.give(_tree_bytes(self._source))
                self.tree = self._source = None
                for slot in self.slots:
                    slot.buffers.scratch = Workspace()
                self.budget.take(f"a dictionary of {tree.node_count} trie-nodes", _tree_bytes(tree))
                stream = self.slots[0].stream
                self.tree, self._source = DeviceLtb(tree, stream), tree
                stream.synchronize()
        self.budget.check("the active bitmaps", 4 * (self.distance + 1) * tree.node_count)
        self.active_bytes = min(self.budget.left // len(self.slots), ACTIVE_BYTES)

    def close(self) -> None:
        """Free the memory."""
        super().close()
        self.tree = self._source = None


def _tree_bytes(tree: TreeBitmap) -> int:
    return 32 * tree.node_count + (1 << 16)


class _LtbFlight(streams.Flight["_LtbFlight"]):
    """A chunk on a slot, and the pinned symbols it was sent from."""

    card: _LtbCard
    slot: _LtbSlot
    chunk: streams.BatchChunk
    buffer: Symbols

    def send(self) -> None:
        """Queue the upload, the kernel and the download of the bitmaps."""
        card, slot, buffers = self.card, self.slot, self.slot.buffers
        size, stream = self.chunk.symbols, self.slot.stream
        assert card.tree is not None
        with self.bar("HtoD"):
            send(self.buffer, buffers.symbols[:size], stream)
        with self.bar("kernel"):
            launch(
                card.tree, buffers, size, card.distance, method=card.method, stream=stream,
                active_bytes=card.active_bytes,
            )  # fmt: skip
        with self.bar("DtoH"):
            fetch(buffers.matches, slot.matches, stream, size)
            fetch(buffers.mismatches, slot.mismatches, stream, size)

    def land(self) -> _LtbFlight:
        """Wait; the bitmaps are in the slot."""
        self.slot.stream.synchronize()
        return self


class LtbEngine(streams.StreamEngine[_LtbCard, _LtbFlight]):
    """Matches batches with the Levenshtein Tree Bitmap.

    distance: D. method: a kernel. chunk: most symbols in a chunk, without its overlap. threads:
    host threads. options: see StreamOptions.
    """

    def __init__(
        self,
        k: int,
        distance: int,
        *,
        method: str = "ltb-sliced",
        chunk: int = 1_000_000,
        threads: int = 1,
        **options: Unpack[streams.StreamOptions],
    ) -> None:
        check_distance(distance, k)
        self._overlap = overlap_of(k, distance)
        self._chunk = min(max(chunk, k), MAX_CHUNK)
        self._threads = threads
        size = self._chunk + self._overlap
        threads = min(threads, MOST_AHEAD)

        def symbols() -> Symbols:
            return cuda.pinned_array(size, np.uint8)

        ahead = streams.LookAhead(threads, symbols, _packing, most=2 * threads)
        super().__init__(partial(_LtbCard, size, distance, method), _LtbFlight, ahead, **options)

    def match(
        self, tree: TreeBitmap, bases: NDArray[np.uint8], offsets: NDArray[np.int64]
    ) -> tuple[Bitmaps, Bitmaps]:
        """Match and mismatch bitmaps of a batch of any size, as ``trie.ltb.approximate``.

        Raises BatchShapeError for offsets that do not describe the bases.
        """
        with translated_driver_errors():
            for card in self.cards:
                card.load(tree)
        bases, offsets = check_batch(bases, offsets)
        total = bases.size
        matches = np.empty(total, dtype=np.uint32)
        mismatches = np.empty(total, dtype=np.uint32)
        chunks = streams.overlapping(bases, offsets, range(0, total, self._chunk), self._overlap)

        def take(flight: _LtbFlight) -> None:
            slot, chunk = flight.slot, flight.chunk
            whole, own = slice(chunk.start, chunk.stop), slice(chunk.lead, chunk.symbols)
            with flight.bar("CPU"):
                copy_into(matches[whole], slot.matches[own], self._threads)
                copy_into(mismatches[whole], slot.mismatches[own], self._threads)

        for _ in self._taken(self._ahead.prepared(chunks), take):
            pass
        return matches, mismatches
