"""Chunks through the Levenshtein kernels: streams side by side (thesis 3.3.12).

A chunk begins k + D - 1 symbols before the first that it answers for (thesis 3.3.5), so results do
not depend on where chunks are cut. Every stream has buffers of its own, pinned and on the card, and
is only waited for when they are needed again:

    stream A   pack | HtoD | clear, scan, list | DtoH |            hits | pack | HtoD | ...
    stream B                 pack | HtoD | clear, scan, list | DtoH |            hits | ...

Half a byte a symbol goes to the card. Back come the hits, 8 bytes each, or where more than one end
in eight is a hit the words of all ends, 4 bytes each.

A dictionary may be several sets of patterns (one that grows is); a chunk is asked of each in turn
with the same text on the card.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.engine.budget import Budget
from gpu.engine.errors import driver_errors_told
from gpu.engine.leaving import several_used
from gpu.engine.place import OnCard
from gpu.intrinsics import cuda
from gpu.levenshtein import DeviceIndex, NearBuffers, launch, pack_planes, plane_words
from trie.levenshtein import NOTHING
from trie.levenshtein_pieces import PieceIndex

MAX_CHUNK = 1 << 26
"""Symbols of the largest chunk: it bounds a stream's buffers, 0.4 GB on the card, 0.4 pinned."""

FIRST_HITS = 1 << 14
"""Hits that are fetched with their number, before it is known."""

Hits = tuple[NDArray[np.int64], NDArray[np.uint32]]


class _Slot:
    """A stream and the buffers of a chunk on it."""

    def __init__(self, size: int) -> None:
        self.stream = cuda.stream()
        self.buffers = NearBuffers(size)
        self.planes = cuda.pinned_array((4, plane_words(size)), np.uint32)
        self.counter = cuda.pinned_array(1, np.uint32)
        self.first_hits = min(FIRST_HITS, self.buffers.hits.size)
        self.hits = cuda.pinned_array(self.buffers.hits.size, np.uint64)
        self._first_on_card = self.buffers.hits[: self.first_hits]
        self._words: NDArray[np.uint32] | None = None

    def pack(self, bases: NDArray[np.uint8], offsets: NDArray[np.int64], threads: int) -> None:
        """Queue the copy of a chunk to the card."""
        chunk = pack_planes(bases, offsets, threads=threads, out=self.planes)
        self.buffers.upload(chunk, self.stream)

    def ask(self, index: DeviceIndex, symbols: int, lead: int) -> None:
        """Queue a question to one set of patterns about the chunk that is there."""
        launch(index, self.buffers, symbols, lead, self.stream)
        self.buffers.counter.copy_to_host(self.counter, stream=self.stream)
        self._first_on_card.copy_to_host(self.hits[: self.first_hits], stream=self.stream)

    def answer(self, symbols: int, lead: int) -> Hits:
        """Ends - 1 in the chunk, ascending, and their words; waits."""
        self.stream.synchronize()
        number = int(self.counter[0])
        if number > self.hits.size:
            if self._words is None:
                self._words = cuda.pinned_array(self.buffers.max_symbols, np.uint32)
            self.buffers.views(symbols)[1].copy_to_host(self._words[:symbols], stream=self.stream)
            self.stream.synchronize()
            words = self._words[lead:symbols]
            at = np.flatnonzero(words != NOTHING)
            return at + lead, words[at]
        if number > self.first_hits:
            rest = slice(self.first_hits, number)
            self.buffers.hits[rest].copy_to_host(self.hits[rest], stream=self.stream)
            self.stream.synchronize()
        hits = np.sort(self.hits[:number])
        return (hits >> np.uint64(32)).astype(np.int64), hits.astype(np.uint32)


class _Card(OnCard):
    """One device: its slots and the tables that it holds."""

    def __init__(self, number: int, size: int, streams: int, memory: int, *, alone: bool) -> None:
        super().__init__(number, alone=alone)
        with self.active():
            self.budget = Budget(memory)
            self.budget.take("the buffers of a chunk", streams * NearBuffers.nbytes(size))
            self.slots = [_Slot(size) for _ in range(streams)]
        self._tables: dict[int, tuple[PieceIndex, DeviceIndex]] = {}

    def load(self, sets: Sequence[PieceIndex]) -> list[DeviceIndex]:
        """Have the tables of these sets here, and of no others."""
        wanted = {id(one) for one in sets}
        for key in [key for key in self._tables if key not in wanted]:
            self.budget.give(DeviceIndex.nbytes(self._tables.pop(key)[0]))
        for one in sets:
            if id(one) not in self._tables:
                what = f"an index of {one.entries.size} entries"
                self.budget.take(what, DeviceIndex.nbytes(one))
                stream = self.slots[0].stream
                self._tables[id(one)] = one, DeviceIndex(one, stream)
                stream.synchronize()
        return [self._tables[id(one)][1] for one in sets]


class NearEngine:
    """Matches batches within ``distance`` edits of k-mers on one or more cards.

    chunk: symbols of a chunk at most, without its overlap. streams: 2, or 1 for the serial loop, on
    each of ``cards``. memory_bytes: to be used on each, 0 for nine tenths of what is free. threads:
    of the host. Raises CudaEngineError with one line if a card fails or is too small.
    """

    def __init__(
        self,
        k: int,
        distance: int,
        *,
        chunk: int = 1_000_000,
        streams: int = 2,
        cards: Sequence[int] = (0,),
        memory_bytes: int = 0,
        threads: int = 1,
    ) -> None:
        self._overlap = k + distance - 1
        self._chunk = min(max(chunk, k), MAX_CHUNK)
        self._threads = threads
        size = self._chunk + self._overlap
        alone = len(cards) == 1
        with driver_errors_told():
            self._cards = [
                _Card(number, size, streams, memory_bytes, alone=alone) for number in cards
            ]
            several_used(cards)

    def match(
        self,
        sets: Sequence[PieceIndex],
        bases: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        first: int,
        stop: int,
    ) -> Iterator[tuple[int, NDArray[np.int64], NDArray[np.uint32]]]:
        """(set, ends int64 ascending, words uint32) of the ends first + 1 .. stop, chunk by chunk.

        sets: of patterns, built with planar keys; the same objects are on the cards already.
        """
        with driver_errors_told():
            tables = []
            for card in self._cards:
                with card.active():
                    tables.append(card.load(sets))
        slots = [
            (card, card.slots[i], held)
            for i in range(len(self._cards[0].slots))
            for card, held in zip(self._cards, tables, strict=True)
        ]
        flying: deque[tuple[Any, ...]] = deque()
        try:
            for number, start in enumerate(range(first, stop, self._chunk)):
                if len(flying) == len(slots):
                    yield from self._land(flying.popleft())
                card, slot, held = slots[number % len(slots)]
                end = min(start + self._chunk, stop)
                origin = max(start - self._overlap, 0)
                parts = _part(offsets, origin, end)
                with driver_errors_told(), card.active():
                    slot.pack(bases[origin:end], parts, self._threads)
                    if held:
                        slot.ask(held[0], end - origin, start - origin)
                flying.append((card, slot, held, origin, start, end))
            while flying:
                yield from self._land(flying.popleft())
        finally:
            with driver_errors_told():
                for card, slot, *_ in flying:  # leave no copy into a buffer under way behind
                    with card.active():
                        slot.stream.synchronize()

    def _land(
        self, flight: tuple[Any, ...]
    ) -> Iterator[tuple[int, NDArray[np.int64], NDArray[np.uint32]]]:
        card, slot, held, origin, start, end = flight
        for number in range(len(held)):
            with driver_errors_told(), card.active():
                if number:
                    slot.ask(held[number], end - origin, start - origin)
                at, words = slot.answer(end - origin, start - origin)
            yield number, at + origin + 1, words

    def close(self) -> None:
        """Give the memory back; nothing can be matched afterwards."""
        self._cards.clear()


def _part(offsets: NDArray[np.int64], start: int, stop: int) -> NDArray[np.int64]:
    """Offsets of the (parts of) reads inside symbols [start, stop), counted from ``start``."""
    first = int(np.searchsorted(offsets, start, side="right")) - 1
    last = int(np.searchsorted(offsets, stop, side="left"))
    return np.clip(offsets[first : last + 1], start, stop) - start
