"""The methods that search bit planes of a text: ``bit-sliced`` and ``pigeonhole``."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gpu.card.budget import free_memory
from gpu.card.intrinsics import cuda
from gpu.card.launch import made
from gpu.exact.device_tree import clear
from gpu.hamming import bit_planes, bit_sliced, pigeonhole, shape
from gpu.hamming.sorting import HitSorter
from gpu.hamming.text_upload import Planes
from trie.codes import GAP

CHUNKS = (1 << 10, 1 << 26)  # the fewest and the most windows in a chunk

MOST_HITS = 1 << 28
"""Most hit words of a chunk (2 GiB), unless it has the fewest windows."""

FIRST_CAPACITY = 1 << 22  # most hit words in the first buffer

WINDOW_SHARE, HIT_SHARE = 16, 64
"""Bytes of free memory for each window of a chunk, and for each hit word of the first buffer."""

COUNTERS = 256
"""Hit counters, one per scan, cleared together, as a launch costs more than a short scan."""

BLOCKS = 2112  # blocks that fill a large GPU several times over


class PlaneKernel(Protocol):
    """A kernel for one set of patterns."""

    def words(self, windows: int) -> int:
        """The words of a plane of a text with that many windows, an even number."""

    def launch(
        self, text: Planes, windows: int, counter: tuple[Any, np.uint32], found: Any, stream: Any
    ) -> None:
        """Queue the kernel: it counts hits and writes those that fit to ``found``, unordered.

        counter: an array and the index of the hit count in it.
        """


class BitSliced:
    """The kernel ``bit-sliced`` (gpu/hamming/bit_sliced.py) for uint8[r, m] patterns."""

    def __init__(self, patterns: NDArray[np.uint8], k: int) -> None:
        self.count, self.length = patterns.shape
        self.shape = shape.shape_for(self.length, k)
        self._gaps = np.uint32((patterns >= GAP).any())
        self._patterns = cuda.to_device(bit_planes.packed(patterns))
        steps = shape.steps_of(patterns, self.shape)
        self._steps = cuda.to_device(steps.ravel())
        self._quads = steps[0].size // 4
        self._begin = (1 << self.shape.planes) - 1 - k
        self._k = k

    def words(self, windows: int) -> int:
        """As ``PlaneKernel.words``."""
        return (-(-windows // shape.TILE) + 1) * shape.SPAN

    def launch(
        self, text: Planes, windows: int, counter: tuple[Any, np.uint32], found: Any, stream: Any
    ) -> None:
        """As ``PlaneKernel.launch``."""
        tiles = -(-windows // shape.TILE)
        # the patterns are divided among blocks, so that even a short text fills the GPU
        shares = max(1, min(-(-self.count // bit_sliced.BATCH), BLOCKS // tiles))
        shares = max(shares, -(-self.count // bit_sliced.MOST_SHARED))
        share = -(-self.count // (shares * bit_sliced.BATCH)) * bit_sliced.BATCH
        grid = (tiles, -(-self.count // share))
        made(bit_sliced.bit_sliced, self.shape, registers=self.shape.registers)[grid, 32, stream](
            text.text, text.gaps, np.uint32(text.gaps | self._gaps), np.uint32(windows),
            self._steps, np.uint32(self._quads), np.uint32(self._begin), np.uint32(self._k),
            self._patterns, np.uint32(bit_planes.blocks_of(self.length)), np.uint32(share),
            np.uint32(self.count), *counter, found,
        )  # fmt: skip


class Pigeonhole:
    """The kernel ``pigeonhole`` for uint8[r, m] patterns.

    index: bitmap and rank [s, 4^q / 64], starts, members (gpu/hamming/pigeonhole.py); places
    int64[s], where the pieces begin; length: q; errors: e.
    """

    def __init__(self, patterns: NDArray[np.uint8], k: int, index: Any) -> None:
        self._blocks = bit_planes.blocks_of(patterns.shape[1])
        self._kernel = made(pigeonhole.pigeonhole, index.length)
        records = np.stack([index.bitmap, index.rank.astype(np.uint64)], axis=2).ravel()
        inside = np.zeros((index.places.size, 32 * self._blocks), dtype=np.uint8)
        for piece, place in zip(inside, index.places, strict=True):
            piece[place : place + index.length] = 1
        bits = np.packbits(inside, axis=1, bitorder="little").view("<u4")
        pieces = np.concatenate([index.places[:, None].astype(np.uint32), bits], axis=1)
        self._index = (
            cuda.to_device(records), cuda.to_device(index.starts), cuda.to_device(index.members),
            cuda.to_device(pieces), np.uint32(index.errors),
            cuda.to_device(bit_planes.packed(patterns)), np.uint32(self._blocks), np.uint32(k),
        )  # fmt: skip

    def words(self, windows: int) -> int:
        """As ``PlaneKernel.words``."""
        return 2 * (-(-windows // 64) + self._blocks + 1)

    def launch(
        self, text: Planes, windows: int, counter: tuple[Any, np.uint32], found: Any, stream: Any
    ) -> None:
        """As ``PlaneKernel.launch``."""
        self._kernel[-(-windows // pigeonhole.THREADS), pigeonhole.THREADS, stream](
            text.text, text.gaps, np.uint32(windows), *self._index, *counter, found
        )


class PlaneSearcher:
    """A search for patterns of ``shape`` (r, m), and its buffers.

    ids: uint64[r], ascending, shifted to their place in a hit word. chunk: most windows in a call
    of ``words``, which bounds memory: at most ``most``, and what fits into free memory.
    """

    def __init__(
        self, kernel: PlaneKernel, shape: tuple[int, ...], ids: NDArray[np.uint64], most: int
    ) -> None:
        self._kernel = kernel
        count, self._length = shape
        memory = free_memory()
        windows = max(CHUNKS[0], min(CHUNKS[1], MOST_HITS // count, memory // WINDOW_SHARE))
        self.chunk = min(most, windows)
        self._counters = cuda.device_array(COUNTERS, np.uint32)
        self._counter = COUNTERS - 1
        capacity = max(1, min(FIRST_CAPACITY, memory // HIT_SHARE))
        self.found = cuda.device_array(capacity, np.uint64)
        self._sorter = HitSorter(ids)
        self._stream = cuda.stream()
        self._texts = (Planes(cuda.stream()), Planes(cuda.stream()))
        self._ahead: tuple[NDArray[np.uint8], int, int] | None = None
        """The windows whose text was sent while the previous chunk was searched."""

    def send(self, codes: NDArray[np.uint8], windows: int) -> Planes:
        """Queue the text of that many windows."""
        text = self._texts[0]
        text.send(codes, self._kernel.words(windows))
        return text

    def scan(self, text: Planes, windows: int, stream: Any = 0) -> None:
        """Queue the search: ``count`` hits; those that fit are in ``found``, unordered."""
        self._counter += 1
        if self._counter == COUNTERS:
            self._counter = 0
            clear(self._counters, stream)
        place = (self._counters, np.uint32(self._counter))
        self._kernel.launch(text, windows, place, self.found, stream)

    def count(self, stream: Any = 0) -> int:
        """Wait for the last scan; its number of hits."""
        counted = self._counters.copy_to_host(stream=stream)
        stream = stream or cuda.default_stream()
        stream.synchronize()
        return int(counted[self._counter])

    def words(
        self,
        codes: NDArray[np.uint8],
        first: int,
        stop: int,
        then: tuple[int, int] | None = None,
    ) -> list[NDArray[np.uint64]]:
        """Ascending hit words of the windows [first, stop) of a text, base codes on the host.

        They are valid until the next call. Meanwhile the next chunk, ``then`` or the one that
        follows, is packed and sent.
        """
        ahead = self._ahead
        if ahead is None or ahead[0] is not codes or ahead[1:] != (first, stop):
            self._send_part(codes, first, stop)
        text = self._texts[0]
        self._texts = self._texts[::-1]
        self._ahead = None
        windows = stop - first
        text.sent.wait(self._stream)
        self.scan(text, windows, self._stream)
        if then is None:
            then = stop, min(stop + self.chunk, codes.size - self._length + 1)
        if then[1] > then[0]:
            self._send_part(codes, *then)
            self._ahead = (codes, *then)
        hits = self.count(self._stream)
        if hits > self.found.size:
            self.found = None
            self.found = cuda.device_array(hits + hits // 4, np.uint64)
            self.scan(text, windows, self._stream)
        return self._sorter.fetch(self.found, hits, windows, self._stream)

    def _send_part(self, codes: NDArray[np.uint8], first: int, stop: int) -> None:
        self.send(codes[first : stop + self._length - 1], stop - first)
