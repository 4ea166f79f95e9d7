"""The engine of exact matching: runs chunks through kernels, on streams of one or more devices.

    stream A   pack | HtoD | kernels | DtoH |          reconcile | pack | HtoD | ...
    stream B                     pack | HtoD | kernels | DtoH |          reconcile | ...

A growing dictionary stays on the GPU (gpu/exact/kmer_set_kernels.py); the thesis sends it again for
each chunk. ``claim`` of a chunk waits for that of the previous chunk, whatever the stream, so that
``decide`` sees every earlier window. With a snapshot, its kernel runs first, and only windows that
it does not match are looked up in the set. A dictionary grows on one device only: on two, each
chunk would wait, through the host, for what the other device found, which took 4 to 11 times as
long.

With a fixed dictionary each device has its own thread, which packs, sends and lands its chunks;
consecutive chunks go to different devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from gpu.card.cuda_errors import translated_driver_errors
from gpu.card.packing import pack_chunk
from gpu.card.streams import Flights, LookAhead, StreamEngine, StreamOptions
from gpu.card.streams.stream_engine import Taken
from gpu.exact.card import ExactCard
from gpu.exact.flight import ChunkFound, ChunkPiece, ExactFlight
from gpu.exact.kmer_set import KmerSet
from gpu.exact.slot import PackedArrays, pinned_arrays
from trie.snapshots.tree_bitmap import TreeBitmap
from trie.strands import Strands

__all__ = ["MAX_CHUNK", "ChunkFound", "ChunkPiece", "Pipeline"]

MAX_CHUNK = 1 << 25
"""Symbols of the largest chunk. It bounds a stream's buffers: 17 MB, or 0.6 GB when growing."""

MOST_AHEAD = 8  # most threads that pack ahead, per device
TOGETHER = 1 << 24  # symbols that a thread packs ahead in one task

MOST_TOGETHER = 16
"""Most chunks per such task: pinning a small buffer takes as long as pinning a large one."""

Prepared = tuple[ChunkPiece, PackedArrays | None]


class Pipeline(StreamEngine[ExactCard, ChunkFound]):
    """Matches chunks in the given order, on one device, or on several if the dictionary is fixed.

    k, strands: of the dictionary. chunk: symbols of the largest chunk (at most MAX_CHUNK). threads:
    host threads, which the devices share. options: see StreamOptions.
    """

    def __init__(
        self,
        k: int,
        strands: Strands = "canonical",
        *,
        chunk: int = 1 << 20,
        threads: int = 1,
        **options: Unpack[StreamOptions],
    ) -> None:
        self.k = k
        self.strands: Strands = strands
        self.chunk = size = min(max(chunk, k), MAX_CHUNK)

        def packing(piece: ChunkPiece, buffer: PackedArrays) -> list[Callable[[], object]]:
            bases, offsets = piece.bases, piece.offsets
            assert isinstance(bases, np.ndarray)
            assert offsets is not None
            out_bases, out_starts = buffer
            return [
                partial(pack_chunk, bases, offsets, k, out_bases=out_bases, out_starts=out_starts)
            ]

        cards = len(options.get("cards", (0,)))
        self.threads = max(threads // cards, 1)
        threads_ahead = min(threads, MOST_AHEAD * cards)
        super().__init__(
            lambda share: ExactCard(k, strands, size, self.threads, share),
            ExactFlight,
            LookAhead(
                threads_ahead,
                lambda: pinned_arrays(size),
                packing,
                most=threads_ahead,
                together=min(max(1, TOGETHER // size), MOST_TOGETHER),
            ),
            **options,
        )

    @property
    def kmers(self) -> KmerSet:
        """The set of k-mers of the first device; with several devices all are equal."""
        found = self.cards[0].kmers
        assert found is not None, "load() makes the set"
        return found

    def load(self, codes: NDArray[np.uint64], sets: NDArray[np.uint32], *, growing: bool) -> None:
        """Build the set of k-mers from distinct ``codes`` (uint64) and their target sets (uint32).

        codes are canonical unless the strands are ``forward``. growing (one device only): leave
        room for a chunk.
        """
        assert not growing or len(self.cards) == 1
        room = self.chunk if growing else 0
        with translated_driver_errors():
            for card in self.cards:
                if growing:
                    card.prepare_growth()
                card.load(codes, sets.astype(np.uint64), self.strands != "forward", room)

    def prepare(self, tree: TreeBitmap, version: int, method: str = "default") -> None:
        """Send a snapshot before the first chunk; raise CardMemoryError if it does not fit."""
        with translated_driver_errors():
            for card in self.cards:
                with card.active():
                    card.tree(tree, version, method, card.slots[0])

    def map(
        self,
        take: Callable[[ChunkFound], Taken],
        pieces: Iterable[ChunkPiece],
        *,
        ahead: bool = False,
    ) -> Iterator[Taken]:
        """``take(result)`` for the result of each chunk, in order; pieces are taken one by one.

        It copies what it needs; each of several devices calls it on its own thread. ahead: threads
        pack chunks before their turn, one thread per chunk. By default a chunk is split over
        threads, and waking them takes as long as packing a million symbols.
        """
        prepared: Iterable[Prepared] = ((piece, None) for piece in pieces)
        if ahead:
            prepared = self._ahead.prepared(pieces)
        if len(self.cards) > 1:
            prepared = map(_as_of_now, prepared)
        return self._taken(prepared, take)

    def _answers(
        self, flights: Flights[ChunkFound], prepared: Iterable[Prepared]
    ) -> Iterator[ChunkFound]:
        for found in self._with_room(flights, prepared):
            if found.codes is not None:
                self.kmers.known += found.codes.size
            yield found

    def _with_room(
        self, flights: Flights[ChunkFound], prepared: Iterable[Prepared]
    ) -> Iterator[ChunkFound]:
        """The results, while the set is made large enough for each chunk before it is sent."""
        for piece, buffer in prepared:
            if piece.settled or not self._fits(piece, flights):
                yield from flights.drain()
            if piece.grow and not flights.flying:
                self._make_room(piece.symbols, flights)
            yield from flights.queue(piece, buffer)
        yield from flights.drain()

    def _fits(self, piece: ChunkPiece, flights: Flights[ChunkFound]) -> bool:
        """Whether the set has room for the windows in flight and those of this chunk."""
        if not piece.grow:
            return True
        in_flight = sum(one.chunk.symbols for one in flights.flying if one.chunk.grow)
        return self.kmers.room(in_flight + piece.symbols)

    def _make_room(self, windows: int, flights: Flights[ChunkFound]) -> None:
        with translated_driver_errors():
            for card in self.cards:
                assert card.kmers is not None
                if not card.kmers.room(windows):
                    with card.active(), self._enlarging(flights.sent):
                        card.kmers.enlarge(windows, card.slots[0].stream)

    def _enlarging(self, number: int) -> AbstractContextManager[None]:
        if self.timeline is None:
            return nullcontext()
        return self.timeline.host(number, 0, row="enlarge")


def _as_of_now(prepared: Prepared) -> Prepared:
    """The chunk with the current snapshot, so that other threads need not request it."""
    piece, buffer = prepared
    if piece.snapshot is None:
        return prepared
    snapshot = piece.snapshot()
    return replace(piece, snapshot=lambda: snapshot), buffer
