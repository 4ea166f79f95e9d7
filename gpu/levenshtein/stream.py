"""Chunks through the Levenshtein kernels: streams side by side (gpu/card/streams.py).

A chunk begins k + D - 1 symbols before the first that it answers for (thesis 3.3.5), so results do
not depend on where chunks are cut. Threads pack chunks ahead into pinned buffers; half a byte a
symbol goes to the card. Back come the hits, 8 bytes each. Where these are more than one for 32
symbols, the chunk is asked again for the words of all ends, 4 bytes each, and so are the next ones
until hits are few.

A dictionary may be several sets of patterns (one that grows is); a chunk is asked of each in turn
with the same text on the card.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Thread

import numpy as np
from numpy.typing import NDArray

from gpu.card.budget import Budget
from gpu.card.errors import driver_errors, driver_errors_told
from gpu.card.intrinsics import cuda
from gpu.card.place import OnCard
from gpu.card.process_exit import several_used
from gpu.card.streams import Ahead, BatchChunk, Flights, bar, overlapping
from gpu.card.timeline import Timeline
from gpu.levenshtein import NearBuffers, compile_scans, launch
from gpu.levenshtein.device_index import DeviceIndex, changes_soon
from gpu.levenshtein.planes import PLANES, packing, plane_words
from trie.levenshtein import NOTHING, Patterns
from trie.windows import check_batch

MAX_CHUNK = 1 << 26
"""Symbols of the largest chunk: it bounds a stream's buffers, 0.3 GB on the card, 0.3 pinned."""

FIRST_HITS = 1 << 14
"""Hits that are fetched with their number, before it is known."""

MOST_AHEAD = 16
"""Threads that pack: so many read as fast as memory gives."""

Hits = tuple[NDArray[np.int64], NDArray[np.uint32]]
SetHits = tuple[int, NDArray[np.int64], NDArray[np.uint32]]


def _packing(chunk: BatchChunk, planes: NDArray[np.uint32]) -> list[Callable[[], None]]:
    return packing(chunk.bases, chunk.offsets, chunk.origin, chunk.stop, planes)


class _NearSlot:
    """A stream and the buffers of a chunk on it; ``number`` is that of the stream."""

    def __init__(self, number: int, size: int) -> None:
        self.number = number
        self.stream = cuda.stream()
        self.buffers = NearBuffers(size)
        found = self.buffers.found
        self._found = cuda.pinned_array(found.size, np.uint64)
        self._first = found[: FIRST_HITS + 1]
        self._words: NDArray[np.uint32] | None = None
        # whether hits were too many to be listed
        self._dense = False

    def ask(self, index: DeviceIndex, chunk: BatchChunk, timeline: Timeline | None) -> None:
        """Queue a question to one set of patterns about the chunk that is there."""
        with bar(timeline, "kernel", chunk.number, self.number, self.stream):
            launch(
                index, self.buffers, chunk.symbols, chunk.lead, self.stream, all_words=self._dense
            )
        with bar(timeline, "DtoH", chunk.number, self.number, self.stream):
            if self._dense:
                there = self.buffers.views(chunk.symbols)[1]
                there.copy_to_host(self._all_words()[: chunk.symbols], stream=self.stream)
            else:
                self._first.copy_to_host(self._found[: self._first.size], stream=self.stream)

    def answer(self, index: DeviceIndex, chunk: BatchChunk, timeline: Timeline | None) -> Hits:
        """Ends - 1 in the chunk, ascending, and their words; waits."""
        self.stream.synchronize()
        if not self._dense and int(self._found[0]) >= self._found.size:
            self._dense = True
            self.ask(index, chunk, timeline)
            self.stream.synchronize()
        if self._dense:
            words = self._all_words()[chunk.lead : chunk.symbols]
            at = np.flatnonzero(words != NOTHING)
            # an end is listed for each piece that reaches it
            self._dense = at.size > self._found.size // 8
            return at + chunk.lead, words[at]
        behind = int(self._found[0]) + 1
        if behind > self._first.size:
            rest = slice(self._first.size, behind)
            self.buffers.found[rest].copy_to_host(self._found[rest], stream=self.stream)
            self.stream.synchronize()
        hits = np.sort(self._found[1:behind])
        ends = (hits >> np.uint64(32)).astype(np.int64)
        least = np.flatnonzero(np.diff(ends, prepend=-1))
        return ends[least], hits[least].astype(np.uint32)

    def _all_words(self) -> NDArray[np.uint32]:
        if self._words is None:
            self._words = cuda.pinned_array(self.buffers.max_symbols, np.uint32)
        return self._words


class _NearCard(OnCard):
    """One device: its slots and the tables that it holds."""

    def __init__(self, number: int, size: int, streams: int, memory: int, *, alone: bool) -> None:
        super().__init__(number, alone=alone)
        with self.active():
            self.budget = Budget(memory)
            self.budget.take("the buffers of a chunk", streams * NearBuffers.nbytes(size))
            self.slots = [_NearSlot(i, size) for i in range(streams)]
        self._tables: dict[int, tuple[Patterns, DeviceIndex]] = {}
        self.held: list[DeviceIndex] = []

    def load(self, sets: Sequence[Patterns]) -> bool:
        """Have the tables of these sets here, and of no others; whether others were before."""
        grown = any(id(one) not in self._tables for one in sets) and bool(self._tables)
        wanted = {id(one) for one in sets}
        for key in [key for key in self._tables if key not in wanted]:
            self.budget.give(DeviceIndex.nbytes(self._tables.pop(key)[0]))
        with self.active():
            stream = self.slots[0].stream
            for one in sets:
                if id(one) not in self._tables:
                    what = f"an index of {one.words.size} patterns"
                    self.budget.take(what, DeviceIndex.nbytes(one))
                    self._tables[id(one)] = one, DeviceIndex(one, stream=stream)
                    stream.synchronize()
        self.held = [self._tables[id(one)][1] for one in sets]
        return grown


_Place = tuple[_NearCard, _NearSlot]


@dataclass(frozen=True, slots=True)
class _NearFlight:
    """A chunk under way, and the pinned planes that it was sent from."""

    card: _NearCard
    slot: _NearSlot
    chunk: BatchChunk
    planes: NDArray[np.uint32]


class NearEngine:
    """Matches batches within ``distance`` edits of k-mers on one or more cards.

    chunk: symbols of a chunk at most, without its overlap. streams: 2, or 1 for the serial loop, on
    each of ``cards``. memory_bytes: to be used on each, 0 for nine tenths of what is free. threads:
    of the host. timeline: notes what ran when. Raises CudaEngineError with one line if a card fails
    or is too small.
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
        timeline: Timeline | None = None,
    ) -> None:
        self._distance = distance
        self._overlap = k + distance - 1
        self._chunk = min(max(chunk, k), MAX_CHUNK)
        self._timeline = timeline
        self._compiling: Thread | None = None
        size = self._chunk + self._overlap
        alone = len(cards) == 1
        with driver_errors_told():
            self._cards = [
                _NearCard(number, size, streams, memory_bytes, alone=alone) for number in cards
            ]
            several_used(cards)
        # consecutive chunks go to different cards, then to different streams
        self._places = [(card, card.slots[i]) for i in range(streams) for card in self._cards]
        self._ahead: Ahead[BatchChunk, NDArray[np.uint32]] = Ahead(
            min(threads, MOST_AHEAD),
            lambda: cuda.pinned_array(PLANES * plane_words(size), np.uint32),
            _packing,
        )

    def match(
        self,
        sets: Sequence[Patterns],
        bases: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        first: int,
        stop: int,
    ) -> Iterator[SetHits]:
        """(set, ends int64 ascending, words uint32) of the ends first + 1 .. stop, chunk by chunk.

        The tables of ``sets`` are made once: they stay on the cards while the same objects are
        asked for. Raises BatchShapeError for offsets that do not describe the bases.
        """
        if not sets:
            return
        with driver_errors_told():
            grown = [card.load(sets) for card in self._cards]
            if any(grown) and any(changes_soon(one) for one in sets):
                self._compile_ahead()
        bases, offsets = check_batch(bases, offsets)
        chunks = overlapping(bases, offsets, range(first, stop, self._chunk), self._overlap)
        flights: Flights[
            _Place, tuple[BatchChunk, NDArray[np.uint32]], _NearFlight, Iterator[SetHits]
        ]
        flights = Flights(self._places, self._send, self._land, self._leave)
        for answers in flights.run(self._ahead.prepared(chunks)):
            yield from answers

    def _compile_ahead(self) -> None:
        """Compile what a larger dictionary will ask for, once: the stream shall not wait for it."""
        if self._compiling is None:
            self._compiling = Thread(target=self._compile, name="compile")
            self._compiling.start()

    def _compile(self) -> None:
        usual = sys.getswitchinterval()
        # numba's compiler is Python; usually each call of the stream would wait 5 ms for its turn
        sys.setswitchinterval(1e-4)
        try:
            # what goes wrong here is told when the kernel is launched
            with suppress(*driver_errors()):
                for card in self._cards:
                    with card.active():
                        compile_scans(self._distance)
        finally:
            sys.setswitchinterval(usual)

    def _send(self, place: _Place, prepared: tuple[BatchChunk, NDArray[np.uint32]]) -> _NearFlight:
        (card, slot), (chunk, planes) = place, prepared
        with driver_errors_told(), card.active():
            with bar(self._timeline, "HtoD", chunk.number, slot.number, slot.stream):
                slot.buffers.upload(planes, chunk.symbols, slot.stream)
            slot.ask(card.held[0], chunk, self._timeline)
        return _NearFlight(card, slot, chunk, planes)

    def _land(self, flight: _NearFlight) -> Iterator[SetHits]:
        card, slot, chunk = flight.card, flight.slot, flight.chunk
        for number, index in enumerate(card.held):
            with driver_errors_told(), card.active():
                if number:
                    slot.ask(index, chunk, self._timeline)
                with bar(self._timeline, "CPU", chunk.number, slot.number):
                    at, words = slot.answer(index, chunk, self._timeline)
            if not number:
                self._ahead.give_back(flight.planes)
            yield number, at + chunk.origin + 1, words

    def _leave(self, flight: _NearFlight) -> None:
        with driver_errors_told(), flight.card.active():
            flight.slot.stream.synchronize()
        self._ahead.give_back(flight.planes)

    def close(self) -> None:
        """Give the memory back; nothing can be matched afterwards."""
        self._ahead.close()
        self._places.clear()
        self._cards.clear()
