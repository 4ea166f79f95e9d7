"""Chunks through the Levenshtein Tree Bitmap, on one or more devices (gpu/card/streams).

A chunk begins k + D - 1 symbols before the first end that it answers (thesis 3.3.5), so results do
not depend on where chunks are cut. Per symbol, 1 byte goes to the GPU and 8 come back.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from gpu.card.cuda_errors import translated_driver_errors
from gpu.card.intrinsics import cuda
from gpu.card.memory import Budget, Workspace, fetch, send
from gpu.card.streams import (
    BatchChunk,
    CardShare,
    Flight,
    LookAhead,
    StreamCard,
    StreamEngine,
    StreamOptions,
    StreamSlot,
    overlapping,
)
from gpu.exact.expand import copy_into
from gpu.ltb import ACTIVE_BYTES, DeviceLtb, LtbBuffers, launch, packing
from trie.codes import check_distance
from trie.ltb import overlap_of
from trie.snapshots.tree_bitmap import TreeBitmap
from trie.windows import check_batch

MAX_CHUNK = 1 << 25
"""Symbols of the largest chunk: it bounds a stream's buffers, 0.4 GB on the GPU, 0.3 pinned."""

MOST_AHEAD = 4  # most threads that pack, which is little work
_SYMBOL_BYTES = 11  # per symbol on the GPU: its code, two bitmaps, and the planes of ``ltb-sliced``
Bitmaps = NDArray[np.uint32]
Symbols = NDArray[np.uint8]


def _packing(chunk: BatchChunk, symbols: Symbols) -> list[Callable[[], None]]:
    return packing(chunk.bases, chunk.offsets, chunk.origin, chunk.stop, symbols)


class _LtbSlot(StreamSlot):
    """A stream, its chunk buffer and its result buffers."""

    def __init__(self, size: int, number: int, budget: Budget) -> None:
        super().__init__(number)
        budget.take("the buffers of a chunk", _SYMBOL_BYTES * size)
        self.buffers = LtbBuffers(size)
        self.matches = cuda.pinned_array(size, np.uint32)
        self.mismatches = cuda.pinned_array(size, np.uint32)


class _LtbCard(StreamCard[_LtbSlot]):
    """A device with the snapshot in use."""

    def __init__(self, size: int, distance: int, method: str, share: CardShare) -> None:
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


class _LtbFlight(Flight["_LtbFlight"]):
    """A chunk on a slot, and the pinned symbols it was sent from."""

    card: _LtbCard
    slot: _LtbSlot
    chunk: BatchChunk
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


class LtbEngine(StreamEngine[_LtbCard, _LtbFlight]):
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
        **options: Unpack[StreamOptions],
    ) -> None:
        check_distance(distance, k)
        self._overlap = overlap_of(k, distance)
        self._chunk = min(max(chunk, k), MAX_CHUNK)
        self._threads = threads
        size = self._chunk + self._overlap
        threads = min(threads, MOST_AHEAD)

        def symbols() -> Symbols:
            return cuda.pinned_array(size, np.uint8)

        ahead = LookAhead(threads, symbols, _packing, most=2 * threads)
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
        chunks = overlapping(bases, offsets, range(0, total, self._chunk), self._overlap)

        def take(flight: _LtbFlight) -> None:
            slot, chunk = flight.slot, flight.chunk
            whole, own = slice(chunk.start, chunk.stop), slice(chunk.lead, chunk.symbols)
            with flight.bar("CPU"):
                copy_into(matches[whole], slot.matches[own], self._threads)
                copy_into(mismatches[whole], slot.mismatches[own], self._threads)

        for _ in self._taken(self._ahead.prepared(chunks), take):
            pass
        return matches, mismatches
