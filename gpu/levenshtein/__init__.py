"""The nearest k-mer of every end of a chunk on the card: buffers, launches, results.

``launch`` queues the kernels of one chunk (gpu/levenshtein/search.py) on a stream, over
buffers that the caller keeps; the two-stream engine builds on it (gpu/levenshtein/stream.py).
``nearest_words`` is the plain form: upload, launch, download, wait.
"""

# mypy: no-check-untyped-defs

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.card.intrinsics import SIMULATED, cuda, numba_type
from gpu.card.kernel_cache import jit
from gpu.levenshtein import search as kernels
from gpu.levenshtein.device_index import DeviceIndex
from gpu.levenshtein.planes import PLANES, pack_planes, plane_words
from trie.levenshtein import NOTHING, Patterns
from trie.levenshtein.pieces import Scheme

HITS_SHARE = 32
"""The list of hits has a place for so many symbols; if there are more, all words come back."""

FILL_BLOCKS = 2048

FULL_WARPS = 1 << 14
"""Warps that fill a large card; shorter chunks get fewer groups of places a warp."""

MOST_GROUPS = 16


@cache
def kernel(name: str) -> Any:
    """The compiled kernel of that name; compiled at its first launch on each device."""
    if name.startswith("scan"):
        return jit(kernels.scan(int(name[4]), name.endswith("paired")))
    return jit(kernels.sources()[name][0])


def compile_scans(distance: int) -> None:
    """Compile the scans of both kinds of scheme on the current card, which takes seconds."""
    if not SIMULATED:
        types = tuple(numba_type(name) for name in kernels.signature())
        for kind in ("", "_paired"):
            kernel(f"scan{distance}{kind}").compile(types)


class NearBuffers:
    """Device memory for one chunk of at most ``max_symbols``, reused from chunk to chunk.

    planes: uint32, one behind the other. found: uint64, the number of hits and then the hits. out:
    uint32, a word an end.
    """

    def __init__(self, max_symbols: int) -> None:
        self.max_symbols = max_symbols
        self.planes = cuda.device_array(PLANES * plane_words(max_symbols), np.uint32)
        self.out = cuda.device_array(max(max_symbols, 1), np.uint32)
        self.found = cuda.device_array(found_size(max_symbols), np.uint64)
        self.no_words = self.out[:0]
        self._views: tuple[int, Any] = (-1, None)

    def views(self, symbols: int) -> tuple[list[Any], Any, Any]:
        """Each plane, the words and all planes of a chunk; kept, as slicing is slow."""
        if self._views[0] != symbols:
            words = plane_words(symbols)
            planes = [self.planes[i * words : (i + 1) * words] for i in range(PLANES)]
            self._views = symbols, (planes, self.out[:symbols], self.planes[: PLANES * words])
        views: tuple[list[Any], Any, Any] = self._views[1]
        return views

    @staticmethod
    def nbytes(max_symbols: int) -> int:
        """Memory on the card."""
        return 4 * (PLANES * plane_words(max_symbols) + max_symbols) + 8 * found_size(max_symbols)

    def upload(self, planes: NDArray[np.uint32], symbols: int, stream: Any = 0) -> None:
        """Queue the copy of a chunk's planes, of which ``planes`` begins with all."""
        there = self.views(symbols)[2]
        there.copy_to_device(planes[: there.size], stream=stream)


def found_size(max_symbols: int) -> int:
    """uint64 for the hits of a chunk and their number."""
    return max_symbols // HITS_SHARE + 2


def launch(
    index: DeviceIndex,
    buffers: NearBuffers,
    symbols: int,
    lead: int,
    stream: Any = 0,
    *,
    all_words: bool = False,
) -> None:
    """Queue the kernels for a chunk of ``symbols`` symbols which the buffers hold.

    Ends behind symbol ``lead`` only: what comes before is there for matches to begin in. Afterwards
    ``buffers.found`` holds the hits as the scan lists them, which may be more than fit; or with
    ``all_words`` ``buffers.out`` the words (index: end - 1).
    """
    if symbols > buffers.max_symbols:
        message = f"a chunk of {symbols} symbols, the buffers hold {buffers.max_symbols}"
        raise ValueError(message)
    threads = kernels.THREADS
    assert threads % 32 == 0
    assert MOST_GROUPS <= kernels.MOST_GROUPS
    scheme = index.scheme
    planes, out, _ = buffers.views(symbols)
    grid = max(-(-symbols // threads), 1)
    if not all_words:
        out = buffers.no_words
    blocks = min(grid, FILL_BLOCKS) if all_words else 1
    kernel("fill")[blocks, threads, stream](out, buffers.found)
    if symbols <= lead:
        return
    name = f"scan{scheme.distance}" + ("_paired" if scheme.paired else "")
    groups = min(max(symbols // (32 * FULL_WARPS), 1), MOST_GROUPS)
    numbers = (symbols, lead, groups, scheme.k, scheme.spacing, scheme.width, len(scheme.gaps))
    kernel(name)[-(-grid // groups), threads, stream](
        *planes, *map(np.uint32, numbers), index.buckets, index.entries, index.ranks,
        buffers.found, out,
    )  # fmt: skip


def nearest_words(
    patterns: Patterns,
    bases: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    *,
    first: int = 0,
    scheme: Scheme | None = None,
) -> NDArray[np.uint32]:
    """uint32[n - first]: the words of the ends first + 1 .. n, as trie/levenshtein/scan.py's.

    The whole batch is one chunk. scheme: None for the one that costs least. Raises what the driver
    raises.
    """
    chunk = pack_planes(bases, offsets)
    if not patterns.words.size or chunk.symbols <= first:
        return np.full(max(chunk.symbols - first, 0), NOTHING, dtype=np.uint32)
    index = DeviceIndex(patterns, scheme)
    buffers = NearBuffers(chunk.symbols)
    buffers.upload(chunk.planes.reshape(-1), chunk.symbols)
    launch(index, buffers, chunk.symbols, first, all_words=True)
    words: NDArray[np.uint32] = buffers.out.copy_to_host()[first:]
    return words
