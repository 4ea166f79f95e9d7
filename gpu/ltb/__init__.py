"""The Levenshtein Tree Bitmap on the card: a snapshot and a chunk in, bitmaps a symbol out.

``launch`` queues a chunk on a stream, over buffers that the caller keeps; ``match_chunk`` is the
plain form: upload, launch, download, wait. The bitmaps are those of trie/ltb, and their words
(thesis Fig. 31) are made by trie/ltb/ltb_words.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.card.errors import CudaEngineError
from gpu.card.intrinsics import SIMULATED, cuda, numba_type
from gpu.card.kernel_cache import jit
from gpu.card.packing import MAX_SYMBOLS, ChunkTooLargeError
from gpu.exact.device_tree import DeviceNodes, clear
from gpu.ltb import efficient, naive, queue, sliced
from gpu.ltb import kernels as ltb
from trie.ltb import MAX_DISTANCE, check_distance, overlap_of
from trie.snapshots.tree_bitmap import TreeBitmap
from trie.windows import check_batch

KERNELS = ("ltb-sliced", "ltb-naive", "ltb-efficient", "ltb-queue")
"""Names of the kernels: the default, then those of the thesis."""

ACTIVE_BYTES = 4 << 30
"""Memory for the active bitmaps: it limits how many blocks run."""

BLOCKS = 4
"""Blocks at most in numba's simulator; on a card as many as it holds at once."""

PART = 1 << 22
"""Symbols that a thread packs at a time."""

SHORTEST_PIECE = 64
"""Symbols of a block's piece at least, for it begins up to 34 symbols early."""

SLICED_WARPS = 4 * 528
"""Warps of ``ltb-sliced`` for which the trie is cut up: a few for each scheduler of a card."""


class TooManyQueueNodesError(CudaEngineError):
    """A snapshot with more trie-nodes than a queue's entry can name."""

    def __init__(self, nodes: int) -> None:
        super().__init__(
            f"the dictionary has {nodes} trie-nodes, 'ltb-queue' can name {queue.NODES}"
        )


class DeviceLtb(DeviceNodes):
    """The arrays of a snapshot in the memory of the current CUDA device, queued on ``stream``."""

    def __init__(self, tree: TreeBitmap, stream: Any = 0) -> None:
        super().__init__(tree, stream)
        self._tasks = [_tasks(tree, level, stream) for level in range(3) if 3 * level < self.k]

    def tasks(self, groups: int) -> tuple[int, int, Any]:
        """How ``ltb-sliced`` cuts up the trie for so many groups of 32 segments.

        The level, its first node, and uint32[T], the paths to its nodes: the first level that makes
        warps enough.
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

    symbols: uint8, as gpu/ltb/kernels draws them. matches, mismatches: uint32 bitmaps.
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
        self._planes: Any = None

    def planes(self, words: int) -> Any:
        """uint64[words] for the bit planes of ``ltb-sliced``."""
        if self._planes is None or self._planes.size < words:
            self._planes = None
            self._planes = cuda.device_array(words, np.uint64)
        return self._planes[:words]

    def active(self, words: int) -> Any:
        """uint32[words] for the active bitmaps, which hold anything."""
        if self._active is None or self._active.size < words:
            self._active = None
            self._active = cuda.device_array(words, np.uint32)
        return self._active

    def drop_active(self) -> None:
        """Give the memory of the active bitmaps back."""
        self._active = None


def pack_symbols(bases: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.uint8]:
    """The symbols of a chunk as the kernels read them, uint8[n]: code, and bit 3 a read's first.

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

    out: uint8[at least stop - origin], pinned memory, say, that they are to begin.
    """

    def pack(first: int, last: int) -> None:
        symbols = out[first - origin : last - origin]
        symbols[:] = bases[first:last]
        reads = offsets[np.searchsorted(offsets, first) : np.searchsorted(offsets, last)]
        symbols[reads - first] |= np.uint8(ltb.FIRST_OF_READ)
        if first == origin:
            symbols[0] |= np.uint8(ltb.FIRST_OF_READ)

    return [partial(pack, first, min(first + PART, stop)) for first in range(origin, stop, PART)]


def sources() -> dict[str, ltb.Source]:
    """Every kernel by name: the plain function and its argument types."""
    made: dict[str, ltb.Source] = {
        f"ltb-sliced-{d}": (sliced.sliced(d + 1), sliced.signature_sliced())
        for d in range(MAX_DISTANCE + 1)
    }
    return made | {
        "planes": (sliced.planes, sliced.signature_planes()),
        "ltb-naive": (naive.naive, ltb.signature()),
        "ltb-efficient": (efficient.efficient, ltb.signature()),
        "ltb-queue": (queue.queue(queue.THREADS, queue.QUEUE), ltb.signature()),
    }


@cache
def _compiled(name: str) -> Any:
    return jit(sources()[name][0])


@cache
def _compiled_queue(threads: int, entries: int) -> Any:
    return jit(queue.queue(threads, entries))


@cache
def occupancy(method: str, threads: int, entries: int) -> tuple[int, int]:
    """Registers a thread of a kernel of the thesis, and its blocks that a multiprocessor holds.

    By registers (65,536, given out 256 a warp) and threads (2,048): the queues' shared memory, 512
    bytes a warp, would bind later.
    """
    run = _compiled_queue(threads, entries) if method == "ltb-queue" else _compiled(method)
    run.compile(tuple(numba_type(name) for name in ltb.signature()))
    registers = int(next(iter(run.get_regs_per_thread().values())))
    a_warp = -(-32 * registers // 256) * 256
    return registers, min(2048 // threads, 65536 // (a_warp * (threads // 32)))


def threads_of(method: str) -> int:
    """Threads a block of a kernel of the thesis."""
    modules = {"ltb-naive": naive, "ltb-efficient": efficient, "ltb-queue": queue}
    threads: int = modules[method].THREADS  # type: ignore[attr-defined]
    return threads


def _resident(method: str) -> int:
    """Blocks that the current card holds at once: no more are started, so none waits."""
    if SIMULATED:
        return BLOCKS
    blocks = occupancy(method, threads_of(method), queue.QUEUE)[1]
    return blocks * int(cuda.get_current_device().MULTIPROCESSOR_COUNT)


def grid_of(
    tree: DeviceLtb, symbols: int, distance: int, method: str, active_bytes: int = ACTIVE_BYTES
) -> tuple[int, int]:
    """Blocks for a chunk, and symbols of a block's piece."""
    fit = max(1, active_bytes // (4 * (distance + 1) * tree.node_count))
    blocks = max(1, min(_resident(method), fit, -(-symbols // SHORTEST_PIECE)))
    piece = -(-symbols // blocks)
    return -(-symbols // piece), piece


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
    """Queue the kernel that matches a chunk of ``symbols`` symbols which the buffers hold.

    active_bytes: memory for the active bitmaps of the thesis's kernels; one block is always run.
    Afterwards ``buffers.matches`` and ``buffers.mismatches`` hold the bitmaps of its symbols.
    Raises ValueError for an unknown method or a chunk larger than the buffers, DistanceError as
    trie/ltb, TooManyQueueNodesError if the method is ``ltb-queue`` and the trie too large.
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
    if method == "ltb-sliced":
        _sliced(tree, buffers, symbols, distance, stream)
        return
    grid, piece = grid_of(tree, symbols, distance, method, active_bytes)
    active = buffers.active(grid * (distance + 1) * tree.node_count)
    threads = threads_of(method)
    assert threads % 32 == 0
    run = _compiled_queue(threads, queue.QUEUE) if method == "ltb-queue" else _compiled(method)
    run[grid, threads, stream](
        buffers.symbols[:symbols], np.uint32(tree.k), np.uint32(distance), np.uint32(piece),
        tree.level_offsets, tree.inmaps, tree.exmaps, tree.prefix_sums, active, matches,
        mismatches,
    )  # fmt: skip


def _sliced(tree: DeviceLtb, buffers: LtbBuffers, symbols: int, distance: int, stream: Any) -> None:
    overlap = overlap_of(tree.k, distance)
    useful = sliced.SYMBOLS - overlap
    segments = -(-symbols // useful)
    planes = buffers.planes(4 * segments)
    _compiled("planes")[-(-segments // sliced.THREADS), sliced.THREADS, stream](
        buffers.symbols[:symbols], np.uint32(useful), np.uint32(overlap), np.uint32(segments),
        planes,
    )  # fmt: skip
    groups = -(-segments // 32)
    level, first_node, paths = tree.tasks(groups)
    assert sliced.THREADS % 32 == 0
    grid = -(-32 * groups * (paths.size + 1) // sliced.THREADS)
    _compiled(f"ltb-sliced-{distance}")[grid, sliced.THREADS, stream](
        planes, np.uint32(segments), np.uint32(tree.k), np.uint32(useful), np.uint32(symbols),
        np.uint32(level), paths, tree.nodes, np.uint32(first_node), buffers.matches[:symbols],
        buffers.mismatches[:symbols],
    )  # fmt: skip


def match_chunk(
    tree: DeviceLtb,
    bases: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    distance: int,
    *,
    method: str = "ltb-sliced",
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
