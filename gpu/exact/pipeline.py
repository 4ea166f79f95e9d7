"""Chunks through the kernels: two streams side by side (thesis 3.3.12), or one after the other.

    stream A   pack | HtoD | kernels | DtoH |          reconcile | pack | HtoD | ...
    stream B                     pack | HtoD | kernels | DtoH |          reconcile | ...

Every stream has a chunk buffer and a result buffer of its own. The host packs a chunk, queues its
copies and kernels and goes on with the results of the other stream, which it waits for only then
(thesis Fig. 20). With one stream nothing overlaps: the serial loop of thesis 3.3.9 (Fig. 17).

A growing dictionary stays on the card (gpu/exact/kmer_set_kernels.py); the thesis sent it anew for
each chunk. ``claim`` of a chunk waits for that of the chunk before it, whatever the stream, so
that ``decide`` sees every earlier window. With a snapshot, its kernel answers first, and the set is
only asked for what the snapshot lacks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np
from numpy.typing import NDArray

from gpu.card.errors import driver_errors_told
from gpu.card.process_exit import several_used
from gpu.card.timeline import Timeline
from gpu.exact.card import ExactCard
from gpu.exact.exchange import tell_all
from gpu.exact.flight import ChunkFound, ChunkPiece, Flight
from gpu.exact.kmer_set import KmerSet
from trie.snapshots.tree_bitmap import TreeBitmap
from trie.strands import Strands

__all__ = ["MAX_CHUNK", "ChunkFound", "ChunkPiece", "Pipeline"]

MAX_CHUNK = 1 << 25
"""Symbols of the largest chunk. It bounds a stream's buffers: 17 MB, growing 0.6 GB."""


class Pipeline:
    """Matches chunks on one or more cards, in the order given.

    k, strands: of the dictionary. chunk: symbols of the largest chunk (at most MAX_CHUNK).
    streams: 2, or 1 for the serial loop; more are allowed. cards: numbers of the devices.
    memory_bytes: to be used on each card, 0 for nine tenths of what is free. threads: of the host.
    Raises CardMemoryError if the buffers do not fit, DeviceLostError if the driver fails.
    """

    def __init__(
        self,
        k: int,
        strands: Strands = "canonical",
        *,
        chunk: int = 1 << 20,
        streams: int = 2,
        cards: Sequence[int] = (0,),
        memory_bytes: int = 0,
        threads: int = 1,
        timeline: Timeline | None = None,
    ) -> None:
        self.k = k
        self.strands: Strands = strands
        self.chunk = min(max(chunk, k), MAX_CHUNK)
        self.timeline = timeline
        self._threads = threads
        self._number = 0
        alone = len(cards) == 1
        with driver_errors_told():
            self.cards = [
                ExactCard(number, k, self.chunk, streams, memory_bytes, alone=alone)
                for number in cards
            ]
        several_used(cards)
        # consecutive chunks go to different cards, then to different streams
        self._slots = [(card, card.slots[i]) for i in range(streams) for card in self.cards]

    @property
    def kmers(self) -> KmerSet:
        """The set of k-mers, alike on every card."""
        found = self.cards[0].kmers
        assert found is not None, "load() makes the set"
        return found

    def load(self, codes: NDArray[np.uint64], sets: NDArray[np.uint32], *, growing: bool) -> None:
        """Make the set of k-mers from ``codes`` (uint64, each once) and their target sets (uint32).

        codes are canonical unless the strands are ``forward``. growing: leave room for a chunk.
        """
        room = self.chunk * len(self.cards) if growing else 0
        with driver_errors_told():
            for card in self.cards:
                if growing:
                    card.prepare_growth()
                card.load(codes, sets.astype(np.uint64), self.strands != "forward", room)

    def prepare(self, tree: TreeBitmap, version: int, method: str = "default") -> None:
        """Send a snapshot ahead of the first chunk; CardMemoryError if it does not fit."""
        with driver_errors_told():
            for card in self.cards:
                with card.active():
                    card.tree(tree, version, method, card.slots[0])

    def run(self, pieces: Iterable[ChunkPiece]) -> Iterator[ChunkFound]:
        """The results of the chunks, in order; pieces are asked for one by one."""
        flights: deque[Flight] = deque()
        together: list[ChunkPiece] = []
        try:
            for piece in pieces:
                in_rounds = piece.grow and len(self.cards) > 1
                if together and (piece.settled or not in_rounds):
                    yield from self._round(together)
                    together = []
                if in_rounds or piece.settled or not self._fits(piece, flights):
                    while flights:
                        yield self._land(flights.popleft())
                if in_rounds:
                    together.append(piece)
                    if len(together) == len(self.cards):
                        yield from self._round(together)
                        together = []
                    continue
                if piece.grow and not flights:
                    self._make_room(piece.symbols)
                if len(flights) == len(self._slots):
                    yield self._land(flights.popleft())
                flights.append(self._send(piece))
            if together:
                yield from self._round(together)
            while flights:
                yield self._land(flights.popleft())
        finally:
            if flights:
                self._abandon()

    def _send(self, piece: ChunkPiece) -> Flight:
        card, slot = self._slots[self._number % len(self._slots)]
        flight = Flight(self._number, card, slot, piece, self.strands, self._threads, self.timeline)
        self._number += 1
        with driver_errors_told():
            flight.send()
        return flight

    def _land(self, flight: Flight) -> ChunkFound:
        with driver_errors_told():
            found = flight.land()
        if found.codes is not None:
            self._learnt(found.codes.size)
        return found

    def _learnt(self, number: int) -> None:
        for card in self.cards:
            if card.kmers is not None:
                card.kmers.known += number

    def _round(self, pieces: Sequence[ChunkPiece]) -> Iterator[ChunkFound]:
        """A chunk a card at once; each card is then told what the others found."""
        self._make_room(sum(piece.symbols for piece in pieces))
        self._number = 0  # one slot a card
        flights = [self._send(piece) for piece in pieces]
        with driver_errors_told():
            tell_all(self.cards, flights, self._threads)
        for flight in flights:
            yield self._land(flight)

    def _fits(self, piece: ChunkPiece, flights: Iterable[Flight]) -> bool:
        """Whether the windows under way and those of this chunk fit the set as it is."""
        if not piece.grow:
            return True
        under_way = sum(flight.symbols for flight in flights if flight.piece.grow)
        return self.kmers.room(under_way + piece.symbols)

    def _make_room(self, windows: int) -> None:
        with driver_errors_told():
            for card in self.cards:
                assert card.kmers is not None
                if not card.kmers.room(windows):
                    with card.active(), self._enlarging():
                        card.kmers.enlarge(windows, card.slots[0].stream)

    def _enlarging(self) -> AbstractContextManager[None]:
        if self.timeline is None:
            return nullcontext()
        return self.timeline.host(self._number, 0, row="enlarge")

    def close(self) -> None:
        """Give the memory back, on the cards and pinned; nothing can be matched afterwards."""
        self._slots.clear()
        for card in self.cards:
            card.close()

    def _abandon(self) -> None:
        """Leave no copy into a buffer under way behind."""
        with driver_errors_told():
            for card, slot in self._slots:
                with card.active():
                    slot.stream.synchronize()
