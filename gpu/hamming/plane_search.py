"""The methods that search bit planes of a text on the card: ``bit-sliced`` and ``pigeonhole``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gpu.card.budget import free_memory
from gpu.card.compiled import made
from gpu.card.intrinsics import cuda
from gpu.exact.device_tree import clear
from gpu.hamming import bit_sliced, pigeonhole, planes, shape
from gpu.hamming.hits import Order
from gpu.hamming.text_upload import Planes
from trie.codes import GAP

CHUNKS = (1 << 10, 1 << 26)
"""The least and the most windows of a chunk."""

MOST_HITS = 1 << 28
"""Hit words of a chunk at most (2 GiB), where it has more than the least windows."""

FIRST_CAPACITY = 1 << 22
"""Hit words there is room for at first, at most."""

WINDOW_SHARE, HIT_SHARE = 16, 64
"""Bytes of free memory for each window of a chunk, and for each hit word of the first room."""

COUNTERS = 256
"""Counters of hits, one a scan: they are cleared together, for a launch costs more than a search of
a few million windows.
"""

BLOCKS = 2112
"""Blocks that fill a large card several times over."""


class PlaneSearch(Protocol):
    """A kernel for one set of patterns."""

    def words(self, windows: int) -> int:
        """Words of a plane of the text of so many windows, an even number."""

    def launch(
        self, text: Planes, windows: int, counter: tuple[Any, np.uint32], found: Any, stream: Any
    ) -> None:
        """Queue it: hits are added to ``counter``, the place of an array, those that fit are in
        ``found``, in no order.
        """


class BitSliced:
    """The kernel ``bit-sliced`` (gpu/hamming/bit_sliced.py) for uint8[r, m] patterns."""

    def __init__(self, patterns: NDArray[np.uint8], k: int) -> None:
        self.count, self.length = patterns.shape
        self.shape = shape.shape_for(self.length, k)
        self._gaps = np.uint32((patterns >= GAP).any())
        self._patterns = cuda.to_device(planes.packed(patterns))
        steps = shape.steps_of(patterns, self.shape)
        self._steps = cuda.to_device(steps.ravel())
        self._quads = steps[0].size // 4
        self._begin = (1 << self.shape.planes) - 1 - k
        self._k = k

    def words(self, windows: int) -> int:
        """As ``PlaneSearch.words``."""
        return (-(-windows // shape.TILE) + 1) * shape.SPAN

    def launch(
        self, text: Planes, windows: int, counter: tuple[Any, np.uint32], found: Any, stream: Any
    ) -> None:
        """As ``PlaneSearch.launch``."""
        tiles = -(-windows // shape.TILE)
        # a share of the patterns for each of so many blocks that a short text fills the card too
        shares = max(1, min(-(-self.count // bit_sliced.BATCH), BLOCKS // tiles))
        shares = max(shares, -(-self.count // bit_sliced.MOST_SHARED))
        share = -(-self.count // (shares * bit_sliced.BATCH)) * bit_sliced.BATCH
        grid = (tiles, -(-self.count // share))
        made(bit_sliced.bit_sliced, self.shape, registers=self.shape.registers)[grid, 32, stream](
            text.text, text.gaps, np.uint32(text.gaps | self._gaps), np.uint32(windows),
            self._steps, np.uint32(self._quads), np.uint32(self._begin), np.uint32(self._k),
            self._patterns, np.uint32(planes.blocks_of(self.length)), np.uint32(share),
            np.uint32(self.count), *counter, found,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class DevicePieceIndex:
    """What is within e mismatches of pieces of q symbols of the patterns, 2 bits a symbol.

    bitmap: uint64[s, 4^q / 64]. rank: uint32[s, 4^q / 64]. starts: uint32[lists + 1]. members:
    uint32. Their meaning is that of gpu/hamming/pigeonhole.py. places: int64[s], where the
    pieces begin. length: q. errors: e.
    """

    bitmap: NDArray[np.uint64]
    rank: NDArray[np.uint32]
    starts: NDArray[np.uint32]
    members: NDArray[np.uint32]
    places: NDArray[np.int64]
    length: int
    errors: int


class Pigeonhole:
    """The kernel ``pigeonhole`` for uint8[r, m] patterns and an index of their pieces."""

    def __init__(self, patterns: NDArray[np.uint8], k: int, index: DevicePieceIndex) -> None:
        self._blocks = planes.blocks_of(patterns.shape[1])
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
            cuda.to_device(planes.packed(patterns)), np.uint32(self._blocks), np.uint32(k),
        )  # fmt: skip

    def words(self, windows: int) -> int:
        """As ``PlaneSearch.words``."""
        return 2 * (-(-windows // 64) + self._blocks + 1)

    def launch(
        self, text: Planes, windows: int, counter: tuple[Any, np.uint32], found: Any, stream: Any
    ) -> None:
        """As ``PlaneSearch.launch``."""
        self._kernel[-(-windows // pigeonhole.THREADS), pigeonhole.THREADS, stream](
            text.text, text.gaps, np.uint32(windows), *self._index, *counter, found
        )


class PlanesRun:
    """A search for ``count`` patterns of ``length`` symbols, and its buffers."""

    def __init__(self, search: PlaneSearch, count: int, length: int) -> None:
        self.search = search
        memory = free_memory()
        self.chunk = max(CHUNKS[0], min(CHUNKS[1], MOST_HITS // count, memory // WINDOW_SHARE))
        self._counters = cuda.device_array(COUNTERS, np.uint32)
        self._counter = COUNTERS - 1
        capacity = max(1, min(FIRST_CAPACITY, memory // HIT_SHARE))
        self.found = cuda.device_array(capacity, np.uint64)
        self.order = Order()
        self._length = length
        self._stream = cuda.stream()
        self._texts = (Planes(cuda.stream()), Planes(cuda.stream()))
        self._ahead: tuple[NDArray[np.uint8], int, int] | None = None
        """What was sent while something else was searched."""

    def send(self, codes: NDArray[np.uint8], windows: int) -> Planes:
        """Queue the text of so many windows."""
        text = self._texts[0]
        text.send(codes, self.search.words(windows))
        return text

    def scan(self, text: Planes, windows: int, stream: Any = 0) -> None:
        """Queue the search: ``count`` hits, those that fit are in ``found``, in no order."""
        self._counter += 1
        if self._counter == COUNTERS:
            self._counter = 0
            clear(self._counters, stream)
        place = (self._counters, np.uint32(self._counter))
        self.search.launch(text, windows, place, self.found, stream)

    def count(self, stream: Any = 0) -> int:
        """The hits of the last scan, when it has ended."""
        counted = self._counters.copy_to_host(stream=stream)
        stream = stream or cuda.default_stream()
        stream.synchronize()
        return int(counted[self._counter])

    def words(
        self, codes: NDArray[np.uint8], first: int, stop: int, ids: NDArray[np.uint64]
    ) -> list[NDArray[np.uint64]]:
        """As ``CardEngine.words``; ids: in place in a hit word."""
        ahead = self._ahead
        if ahead is None or ahead[0] is not codes or ahead[1:] != (first, stop):
            self._send_part(codes, first, stop)
        text = self._texts[0]
        self._texts = self._texts[::-1]
        self._ahead = None
        windows = stop - first
        text.sent.wait(self._stream)
        self.scan(text, windows, self._stream)
        after = min(stop + self.chunk, codes.size - self._length + 1)
        if after > stop:
            self._send_part(codes, stop, after)
            self._ahead = (codes, stop, after)
        hits = self.count(self._stream)
        if hits > self.found.size:
            self.found = None
            self.found = cuda.device_array(hits + hits // 4, np.uint64)
            self.scan(text, windows, self._stream)
        return self.order.fetch(self.found, hits, windows, ids, self._stream)

    def _send_part(self, codes: NDArray[np.uint8], first: int, stop: int) -> None:
        self.send(codes[first : stop + self._length - 1], stop - first)
