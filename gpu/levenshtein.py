"""The nearest k-mer of every end of a chunk on the card: packing, tables, launches, results.

``launch`` queues the kernels of one chunk (gpu/kernels/levenshtein.py) on a stream, over buffers
that the caller keeps; the two-stream engine builds on it (gpu/engine/near.py). ``nearest_words`` is
the plain form: upload, launch, download, wait.
"""

# mypy: no-check-untyped-defs

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gpu.intrinsics import cuda
from gpu.kernels import levenshtein as kernels
from trie.levenshtein import NOTHING, Patterns
from trie.levenshtein_pieces import Costs, PieceIndex, Scheme, build, choose
from trie.parallel import run_all, split_range
from trie.windows import check_batch

MAX_SYMBOLS = 1 << 30
SPARE_WORDS = 4
"""Words behind the last symbol's in every plane: windows reach there."""

HITS_SHARE = 8
"""The list of hits has a place for one end in so many; if more are hits, all words come back."""

GPU_COSTS = Costs(
    ((2**17, 40.0), (2**25, 125.0), (float("inf"), 400.0)), candidate=60.0, verify=16.0
)
"""Thread operations: of a look-up in the first-level cache, the second, or memory; see Costs."""

FULL_WARPS = 1 << 14
"""Warps that fill a large card; shorter chunks get fewer groups of places a warp."""

MOST_GROUPS = 16

_PARALLEL_FROM = 1 << 18


@dataclass(frozen=True, slots=True)
class PlaneChunk:
    """A chunk as bit planes: low, high, gaps and firsts, uint32[4, plane_words(symbols)]."""

    symbols: int
    planes: NDArray[np.uint32]


def plane_words(symbols: int) -> int:
    """Words of each plane of so many symbols."""
    return -(-(symbols + kernels.MARGIN + 1) // 32) + SPARE_WORDS


def pack_planes(
    bases: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    *,
    threads: int = 1,
    out: NDArray[np.uint32] | None = None,
) -> PlaneChunk:
    """Pack a chunk: bases uint8[n] (codes, 4 = gap), offsets int64[reads + 1].

    out: uint32[4, at least plane_words(n)], pinned memory, say; its rows are used from the left.
    """
    bases, offsets = check_batch(bases, offsets)
    words = plane_words(bases.size)
    planes = np.empty((4, words), dtype=np.uint32) if out is None else out[:, :words]
    parts = threads if bases.size >= _PARALLEL_FROM else 1
    run_all(
        [
            partial(_pack, bases, a, b, planes)
            for a, b in split_range(0, bases.size, parts, align=32)
        ],
        threads,
    )
    margin = kernels.MARGIN // 32
    planes[:, :margin] = 0
    planes[:3, margin + -(-bases.size // 32) :] = 0
    planes[3, margin:] = 0
    _mark(offsets, planes[3])
    return PlaneChunk(bases.size, planes)


@njit(cache=True, nogil=True)
def _pack(bases, first, stop, planes):  # type: ignore[no-untyped-def]
    """The low, high and gap bits of the symbols [first, stop), 32 | first."""
    bits = np.uint64(0x0101010101010101)
    gather = np.uint64(0x0102040810204080)
    at = first
    while at < stop:
        low = np.uint64(0)
        high = np.uint64(0)
        gap = np.uint64(0)
        if at + 32 <= stop:
            for part in range(4):
                word = np.uint64(0)
                for j in range(8):
                    word |= np.uint64(bases[at + 8 * part + j]) << np.uint64(8 * j)
                place = np.uint64(8 * part)
                low |= (((word & bits) * gather) >> np.uint64(56)) << place
                high |= ((((word >> np.uint64(1)) & bits) * gather) >> np.uint64(56)) << place
                gap |= ((((word >> np.uint64(2)) & bits) * gather) >> np.uint64(56)) << place
        else:
            for j in range(stop - at):
                symbol = np.uint64(bases[at + j])
                low |= (symbol & np.uint64(1)) << np.uint64(j)
                high |= ((symbol >> np.uint64(1)) & np.uint64(1)) << np.uint64(j)
                gap |= ((symbol >> np.uint64(2)) & np.uint64(1)) << np.uint64(j)
        word_at = (at + 64) >> 5
        planes[0, word_at] = np.uint32(low)
        planes[1, word_at] = np.uint32(high)
        planes[2, word_at] = np.uint32(gap)
        at += 32


@njit(cache=True, nogil=True)
def _mark(offsets, firsts):  # type: ignore[no-untyped-def]
    for i in range(offsets.size):
        bit = offsets[i] + 64
        firsts[bit >> 5] |= np.uint32(1) << np.uint32(bit & 31)


@cache
def kernel(name: str) -> Any:
    """The compiled kernel of that name; compiled at its first launch on each device."""
    if name.startswith("scan"):
        return cuda.jit(kernels.scan(int(name[4]), name.endswith("paired")))
    return cuda.jit(kernels.sources()[name][0])


def gpu_scheme(patterns: Patterns) -> Scheme:
    """The scheme that costs least on a card."""
    return choose(patterns.words.size, patterns.k, patterns.distance, GPU_COSTS)


def gpu_index(patterns: Patterns, *, threads: int = 1) -> PieceIndex:
    """The tables in the form that the kernels read, on the host."""
    return build(patterns, gpu_scheme(patterns), threads=threads, planar=True)


class DeviceIndex:
    """The tables of a set of patterns on the card.

    index: built with planar keys. The host's arrays may be freed once ``stream`` has been waited
    for.
    """

    def __init__(self, index: PieceIndex, stream: Any = 0) -> None:
        starts = index.starts.astype(np.uint64)
        self.scheme = index.scheme
        # as pinned memory would cost more than the copy gains, these copies wait
        self.buckets = cuda.to_device(starts[:-1] | (starts[1:] << np.uint64(32)), stream=stream)
        self.entries = cuda.to_device(index.entries, stream=stream)
        self.ranks = cuda.to_device(index.ranks, stream=stream)

    @staticmethod
    def nbytes(index: PieceIndex) -> int:
        """Memory on the card."""
        return 2 * index.starts.nbytes + index.entries.nbytes + index.ranks.nbytes


class NearBuffers:
    """Device memory for one chunk of at most ``max_symbols``, reused from chunk to chunk."""

    def __init__(self, max_symbols: int) -> None:
        self.max_symbols = max_symbols
        words = plane_words(max_symbols)
        self.planes = [cuda.device_array(words, np.uint32) for _ in range(4)]
        self.out = cuda.device_array(max(max_symbols, 1), np.uint32)
        self.hits = cuda.device_array(max_symbols // HITS_SHARE + 1, np.uint64)
        self.counter = cuda.device_array(1, np.uint32)
        self._views: tuple[int, Any] = (-1, None)

    def views(self, symbols: int) -> tuple[list[Any], Any]:
        """The planes and the words of a chunk of so many symbols; kept, as slicing is slow."""
        if self._views[0] != symbols:
            words = plane_words(symbols)
            self._views = symbols, ([plane[:words] for plane in self.planes], self.out[:symbols])
        return self._views[1]

    @staticmethod
    def nbytes(max_symbols: int) -> int:
        """Memory on the card."""
        return 16 * plane_words(max_symbols) + 4 * max_symbols + 8 * (max_symbols // HITS_SHARE + 1)

    def upload(self, chunk: PlaneChunk, stream: Any = 0) -> None:
        """Queue the copies of a chunk's planes."""
        for there, plane in zip(self.views(chunk.symbols)[0], chunk.planes, strict=True):
            there.copy_to_device(plane, stream=stream)


def launch(
    index: DeviceIndex, buffers: NearBuffers, symbols: int, lead: int, stream: Any = 0
) -> None:
    """Queue the kernels for a chunk of ``symbols`` symbols which the buffers hold.

    Ends behind symbol ``lead`` only: what comes before is there for matches to begin in. Afterwards
    ``buffers.out`` holds the words (index: end - 1), ``buffers.hits`` those that are hits in no
    order, and ``buffers.counter`` how many these are, also if more than fit.
    """
    if symbols > buffers.max_symbols:
        message = f"a chunk of {symbols} symbols, the buffers hold {buffers.max_symbols}"
        raise ValueError(message)
    threads = kernels.THREADS
    assert threads % 32 == 0
    assert MOST_GROUPS <= kernels.MOST_GROUPS
    kernel("fill")[1, 32, stream](buffers.counter, np.uint32(0))
    if symbols <= lead:
        return
    scheme = index.scheme
    planes, out = buffers.views(symbols)
    grid = -(-symbols // threads)
    kernel("fill")[grid, threads, stream](out, NOTHING)
    name = f"scan{scheme.distance}" + ("_paired" if scheme.paired else "")
    groups = min(max(symbols // (32 * FULL_WARPS), 1), MOST_GROUPS)
    numbers = (symbols, lead, groups, scheme.k, scheme.spacing, scheme.width, len(scheme.gaps))
    kernel(name)[-(-grid // groups), threads, stream](
        *planes, *map(np.uint32, numbers), index.buckets, index.entries, index.ranks, out
    )
    kernel("compact")[grid, threads, stream](out, buffers.counter, buffers.hits)


def nearest_words(
    patterns: Patterns,
    bases: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    *,
    first: int = 0,
    index: PieceIndex | None = None,
) -> NDArray[np.uint32]:
    """uint32[n - first]: the words of the ends first + 1 .. n, as trie/levenshtein_scan.py's.

    The whole batch is one chunk. Raises what the driver raises.
    """
    chunk = pack_planes(bases, offsets)
    if not patterns.words.size or chunk.symbols <= first:
        return np.full(max(chunk.symbols - first, 0), NOTHING, dtype=np.uint32)
    on_card = DeviceIndex(gpu_index(patterns) if index is None else index)
    buffers = NearBuffers(chunk.symbols)
    buffers.upload(chunk)
    launch(on_card, buffers, chunk.symbols, first)
    words: NDArray[np.uint32] = buffers.out.copy_to_host()[first:]
    number = int(buffers.counter.copy_to_host()[0])
    assert number == int((words != NOTHING).sum())
    return words
