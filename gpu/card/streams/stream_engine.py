"""An engine that runs chunks through the slots of one or more devices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import Any, Generic, TypedDict, TypeVar

import numpy as np
from numpy.typing import NDArray

from gpu.card.cuda_errors import translated_driver_errors
from gpu.card.process_exit import note_devices_in_use
from gpu.card.streams.flights import Answer, Flight, Flights
from gpu.card.streams.look_ahead import LookAhead
from gpu.card.streams.slots import CardShare, StreamCard
from gpu.card.timeline import Timeline
from trie.cpu.thread_lanes import DONE, in_lanes

CardT = TypeVar("CardT", bound=StreamCard[Any])
Taken = TypeVar("Taken")
Chunks = Iterable[tuple[Any, Any]]
"""Prepared chunks with their buffers, taken one by one."""


class StreamOptions(TypedDict, total=False):
    """The options of every engine.

    streams: per device, 2 by default, 1 for the serial loop. cards: device numbers, by default only
    0. memory_bytes: to use on each, 0 for nine tenths of the free memory. timeline: records what
    ran when.
    """

    streams: int
    cards: Sequence[int]
    memory_bytes: int
    timeline: Timeline | None


class StreamEngine(Generic[CardT, Answer]):
    """Devices, the slots for their chunks, and the threads that prepare chunks.

    Raises CardMemoryError if the buffers do not fit, DeviceLostError if the driver fails.
    """

    def __init__(
        self,
        make_card: Callable[[CardShare], CardT],
        flight: Callable[..., Flight[Answer]],
        ahead: LookAhead[Any, Any],
        *,
        streams: int = 2,
        cards: Sequence[int] = (0,),
        memory_bytes: int = 0,
        timeline: Timeline | None = None,
    ) -> None:
        self.timeline = timeline
        self._flight = flight
        self._ahead = ahead
        alone = len(cards) == 1
        with translated_driver_errors():
            self.cards = [
                make_card(CardShare(number, alone, streams, memory_bytes)) for number in cards
            ]
        note_devices_in_use(cards)
        # consecutive chunks go to different devices, then to different streams
        self._places = [(card, card.slots[i]) for i in range(streams) for card in self.cards]

    def _flights(self) -> Flights[Answer]:
        return Flights(self._flight, self._places, self._ahead.give_back, self.timeline)

    def _taken(self, prepared: Chunks, take: Callable[[Answer], Taken]) -> Iterator[Taken]:
        """``take(answer)`` for every chunk, in order; it copies what it needs from the buffers.

        With several devices each has its own thread, which sends, lands and takes its chunks; a
        single chunk needs none, and a timeline has one clock.
        """
        if len(self.cards) == 1 or self.timeline is not None:
            yield from self._in_turn(prepared, take)
            return
        chunks = iter(prepared)
        first = list(islice(chunks, 2))
        if len(first) < 2:
            yield from self._in_turn(first, take)
            return
        ahead = len(self.cards[0].slots) + 1
        yield from in_lanes(
            self.cards, chain(first, chunks), partial(self._on_card, take),
            ahead=ahead, ready=ahead,
        )  # fmt: skip

    def _in_turn(self, prepared: Chunks, take: Callable[[Answer], Taken]) -> Iterator[Taken]:
        with self._flights() as flights:
            for answer in self._answers(flights, prepared):
                yield take(answer)

    def _answers(self, flights: Flights[Answer], prepared: Chunks) -> Iterator[Answer]:
        """The answers on all slots in turn; subclasses may do more for a chunk."""
        return flights.run(prepared)

    def _on_card(
        self, take: Callable[[Answer], Taken], card: CardT, prepared: Chunks
    ) -> Iterator[Taken]:
        """What is taken from one device, on its thread."""
        places = [(card, slot) for slot in card.slots]
        with Flights(self._flight, places, self._ahead.give_back, None) as flights:
            for answer in flights.run(prepared):
                yield take(answer)
                yield DONE

    def close(self) -> None:
        """Free device and pinned memory; nothing can be matched afterwards."""
        self._ahead.close()
        self._places.clear()
        for card in self.cards:
            card.close()


@dataclass(frozen=True, slots=True)
class BatchChunk:
    """The symbols [origin, stop) of a batch, matched for the ends after ``start``."""

    bases: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    origin: int
    start: int
    stop: int

    @property
    def symbols(self) -> int:
        return self.stop - self.origin

    @property
    def lead(self) -> int:
        return self.start - self.origin


def overlapping(
    bases: NDArray[np.uint8], offsets: NDArray[np.int64], ends: range, overlap: int
) -> Iterator[BatchChunk]:
    """The ends of a batch in chunks of ``ends.step``, each with ``overlap`` symbols before them."""
    for start in ends:
        stop = min(start + ends.step, ends.stop)
        yield BatchChunk(bases, offsets, max(start - overlap, 0), start, stop)
