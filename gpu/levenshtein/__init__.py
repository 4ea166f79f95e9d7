"""The nearest k-mer at every end of a chunk on the GPU: buffers and launches.

``launch`` queues the kernels of one chunk (gpu/levenshtein/search.py) on a stream, over buffers
that the caller owns (gpu/levenshtein/stream.py).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.card.intrinsics import SIMULATED, cuda, numba_type
from gpu.card.launch import made, plain, with_threads
from gpu.card.memory import send
from gpu.levenshtein import search
from gpu.levenshtein.device_index import DeviceIndex
from gpu.levenshtein.search import PLANES, plane_words

HITS_SHARE = 32
"""Symbols per place in the hit list; if it overflows, the words of all ends are downloaded."""

FILL_BLOCKS = 2048

FULL_WARPS = 1 << 14
"""Warps that fill a large GPU; shorter chunks get fewer groups of places per warp."""

MOST_GROUPS = 16


def compile_scans(distance: int) -> None:
    """Compile the scans for both kinds of scheme on the current device, which takes seconds."""
    if not SIMULATED:
        types = tuple(numba_type(name) for name in search.ARGUMENTS)
        for paired in (False, True):
            made(search.scan, distance, paired).compile(types)


class NearBuffers:
    """Device memory for one chunk of at most ``max_symbols``, reused from chunk to chunk.

    planes: uint32, concatenated. found: uint64, the number of hits and then the hits. out: uint32,
    one word per end.
    """

    def __init__(self, max_symbols: int) -> None:
        self.max_symbols = max_symbols
        self.planes = cuda.device_array(PLANES * plane_words(max_symbols), np.uint32)
        self.out = cuda.device_array(max(max_symbols, 1), np.uint32)
        self.found = cuda.device_array(found_size(max_symbols), np.uint64)
        self.no_words = self.out[:0]
        self._views: tuple[int, Any] = (-1, None)

    def views(self, symbols: int) -> tuple[list[Any], Any, Any]:
        """Each plane, the words and all planes of a chunk; cached because slicing is slow."""
        if self._views[0] != symbols:
            words = plane_words(symbols)
            planes = [self.planes[i * words : (i + 1) * words] for i in range(PLANES)]
            self._views = symbols, (planes, self.out[:symbols], self.planes[: PLANES * words])
        views: tuple[list[Any], Any, Any] = self._views[1]
        return views

    @staticmethod
    def nbytes(max_symbols: int) -> int:
        """Bytes on the GPU."""
        return 4 * (PLANES * plane_words(max_symbols) + max_symbols) + 8 * found_size(max_symbols)

    def upload(self, planes: NDArray[np.uint32], symbols: int, stream: Any = 0) -> None:
        """Queue the copy of a chunk's planes, the beginning of ``planes``."""
        send(planes, self.views(symbols)[2], stream)


def found_size(max_symbols: int) -> int:
    """The size (in uint64) of the hit list of a chunk and its length."""
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
    """Queue the kernels for the chunk of ``symbols`` symbols in the buffers.

    Only ends after symbol ``lead`` count; matches may begin before it. Afterwards ``buffers.found``
    has the hits as listed by the scan, which may be more than fit; or with ``all_words``,
    ``buffers.out`` has the words (index: end - 1).
    """
    assert symbols <= buffers.max_symbols
    assert MOST_GROUPS <= search.MOST_GROUPS
    scheme, threads = index.scheme, search.THREADS
    planes, out, _ = buffers.views(symbols)
    if not all_words:
        out = buffers.no_words
    words = min(out.size, FILL_BLOCKS * threads)
    with_threads(plain(search.fill), words, threads, stream)(out, buffers.found)
    if symbols <= lead:
        return
    scan = made(search.scan, scheme.distance, scheme.paired)
    groups = min(max(symbols // (32 * FULL_WARPS), 1), MOST_GROUPS)
    numbers = (symbols, lead, groups, scheme.k, scheme.spacing, scheme.width, len(scheme.gaps))
    # a warp processes ``groups`` * 32 places
    with_threads(scan, -(-symbols // groups), threads, stream)(
        *planes, *map(np.uint32, numbers), index.buckets, index.entries, index.ranks,
        buffers.found, out,
    )  # fmt: skip
