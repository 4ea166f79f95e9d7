"""Chunks through the Levenshtein Tree Bitmap kernels: streams side by side (gpu/card/streams.py).

A chunk begins k + D - 1 symbols before the first that it answers for (thesis 3.3.5), so results do
not depend on where chunks are cut. 1 byte a symbol goes to the card, 8 come back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpu.card.budget import Budget
from gpu.card.errors import driver_errors_told
from gpu.card.intrinsics import cuda
from gpu.card.place import OnCard
from gpu.card.process_exit import several_used
from gpu.card.streams import Ahead, BatchChunk, Flights, bar, overlapping
from gpu.card.timeline import Timeline
from gpu.exact.expand import copy_into
from gpu.ltb import ACTIVE_BYTES, DeviceLtb, LtbBuffers, launch, packing
from trie.ltb import check_distance, overlap_of
from trie.snapshots.tree_bitmap import TreeBitmap
from trie.windows import check_batch

MAX_CHUNK = 1 << 25
"""Symbols of the largest chunk: it bounds a stream's buffers, 0.4 GB on the card, 0.3 pinned."""

MOST_AHEAD = 4
"""Threads that pack: that is little work."""

_SYMBOL_BYTES = 11
"""Of a chunk on the card: a symbol, two bitmaps, and the planes of ``ltb-sliced``."""

Bitmaps = NDArray[np.uint32]


def _packing(chunk: BatchChunk, symbols: NDArray[np.uint8]) -> list[Callable[[], None]]:
    return packing(chunk.bases, chunk.offsets, chunk.origin, chunk.stop, symbols)


class _LtbSlot:
    """A stream, its chunk buffer and its result buffers; ``number`` is that of the stream."""

    def __init__(self, number: int, size: int) -> None:
        self.number = number
        self.stream = cuda.stream()
        self.buffers = LtbBuffers(size)
        self.matches = cuda.pinned_array(size, np.uint32)
        self.mismatches = cuda.pinned_array(size, np.uint32)


class _LtbCard(OnCard):
    """One device: its slots and the snapshot that it holds."""

    def __init__(self, number: int, size: int, streams: int, memory: int, *, alone: bool) -> None:
        super().__init__(number, alone=alone)
        with self.active():
            self.budget = Budget(memory)
            self.budget.take("the buffers of a chunk", streams * _SYMBOL_BYTES * size)
            self.slots = [_LtbSlot(i, size) for i in range(streams)]
        self.tree: DeviceLtb | None = None
        self.active_bytes = 0
        self._source: TreeBitmap | None = None

    def load(self, tree: TreeBitmap, distance: int) -> None:
        """Have a snapshot here, and know how much a slot may take for active bitmaps."""
        with self.active():
            if self._source is not tree:
                if self._source is not None:
                    self.budget.give(_tree_bytes(self._source))
                self.tree = self._source = None
                for slot in self.slots:
                    slot.buffers.drop_active()
                self.budget.take(f"a dictionary of {tree.node_count} trie-nodes", _tree_bytes(tree))
                stream = self.slots[0].stream
                self.tree, self._source = DeviceLtb(tree, stream), tree
                stream.synchronize()
        room = (self.budget.limit - self.budget.held) // len(self.slots)
        self.budget.check("the active bitmaps", 4 * (distance + 1) * tree.node_count)
        self.active_bytes = min(room, ACTIVE_BYTES)


def _tree_bytes(tree: TreeBitmap) -> int:
    return 32 * tree.node_count + (1 << 16)


_Place = tuple[_LtbCard, _LtbSlot]


@dataclass(frozen=True, slots=True)
class _LtbFlight:
    """A chunk under way, and the pinned symbols that it was sent from."""

    card: _LtbCard
    slot: _LtbSlot
    chunk: BatchChunk
    symbols: NDArray[np.uint8]


class LtbEngine:
    """Matches batches with the Levenshtein Tree Bitmap on one or more cards.

    distance: D. chunk: symbols of a chunk at most, without its overlap. streams: 2, or 1 for the
    serial loop, on each of ``cards``. memory_bytes: to be used on each, 0 for nine tenths of what
    is free. method: a kernel. threads: of the host. timeline: notes what ran when. Raises
    CudaEngineError with one line if a card fails or is too small.
    """

    def __init__(
        self,
        k: int,
        distance: int,
        *,
        method: str = "ltb-sliced",
        chunk: int = 1_000_000,
        streams: int = 2,
        cards: Sequence[int] = (0,),
        memory_bytes: int = 0,
        threads: int = 1,
        timeline: Timeline | None = None,
    ) -> None:
        check_distance(distance, k)
        self._distance = distance
        self._method = method
        self._overlap = overlap_of(k, distance)
        self._chunk = min(max(chunk, k), MAX_CHUNK)
        self._threads = threads
        self._timeline = timeline
        size = self._chunk + self._overlap
        alone = len(cards) == 1
        with driver_errors_told():
            self._cards = [
                _LtbCard(number, size, streams, memory_bytes, alone=alone) for number in cards
            ]
            several_used(cards)
        # consecutive chunks go to different cards, then to different streams
        self._places = [(card, card.slots[i]) for i in range(streams) for card in self._cards]
        self._ahead: Ahead[BatchChunk, NDArray[np.uint8]] = Ahead(
            min(threads, MOST_AHEAD), lambda: cuda.pinned_array(size, np.uint8), _packing
        )

    def match(
        self, tree: TreeBitmap, bases: NDArray[np.uint8], offsets: NDArray[np.int64]
    ) -> tuple[Bitmaps, Bitmaps]:
        """Match and mismatch bitmaps of a batch of any size, as ``trie.ltb.approximate``.

        Raises BatchShapeError for offsets that do not describe the bases.
        """
        with driver_errors_told():
            for card in self._cards:
                card.load(tree, self._distance)
        bases, offsets = check_batch(bases, offsets)
        total = bases.size
        matches = np.empty(total, dtype=np.uint32)
        mismatches = np.empty(total, dtype=np.uint32)
        chunks = overlapping(bases, offsets, range(0, total, self._chunk), self._overlap)
        flights: Flights[_Place, tuple[BatchChunk, NDArray[np.uint8]], _LtbFlight, _LtbFlight]
        flights = Flights(self._places, self._send, self._land, self._leave)
        for flight in flights.run(self._ahead.prepared(chunks)):
            slot, chunk = flight.slot, flight.chunk
            with bar(self._timeline, "CPU", chunk.number, slot.number):
                for there, pinned in ((matches, slot.matches), (mismatches, slot.mismatches)):
                    copy_into(
                        there[chunk.start : chunk.stop],
                        pinned[chunk.lead : chunk.symbols],
                        self._threads,
                    )
        return matches, mismatches

    def _send(self, place: _Place, prepared: tuple[BatchChunk, NDArray[np.uint8]]) -> _LtbFlight:
        """Queue a chunk: there, through the kernel, and back."""
        (card, slot), (chunk, symbols) = place, prepared
        held, size, stream = slot.buffers, chunk.symbols, slot.stream
        noted = chunk.number, slot.number, stream
        assert card.tree is not None
        with driver_errors_told(), card.active():
            with bar(self._timeline, "HtoD", *noted):
                held.symbols[:size].copy_to_device(symbols[:size], stream=stream)
            with bar(self._timeline, "kernel", *noted):
                launch(
                    card.tree, held, size, self._distance, method=self._method, stream=stream,
                    active_bytes=card.active_bytes,
                )  # fmt: skip
            with bar(self._timeline, "DtoH", *noted):
                held.matches[:size].copy_to_host(slot.matches[:size], stream=stream)
                held.mismatches[:size].copy_to_host(slot.mismatches[:size], stream=stream)
        return _LtbFlight(card, slot, chunk, symbols)

    def _land(self, flight: _LtbFlight) -> _LtbFlight:
        with driver_errors_told(), flight.card.active():
            flight.slot.stream.synchronize()
        self._ahead.give_back(flight.symbols)
        return flight

    def _leave(self, flight: _LtbFlight) -> None:
        self._land(flight)

    def close(self) -> None:
        """Give the memory back; nothing can be matched afterwards."""
        self._ahead.close()
        self._places.clear()
        self._cards.clear()
