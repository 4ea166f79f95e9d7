"""Chunks on several streams of several devices, answered in order (thesis 3.3.12).

    threads    prepare | prepare | prepare | ...
    stream A             HtoD | kernels | DtoH |      answer | HtoD | kernels | ...
    stream B                    HtoD | kernels | DtoH |        answer | HtoD | ...

The host queues chunks on the slots in turn and waits for one only when its slot is needed again
(thesis Fig. 20); a single slot gives the serial loop (Fig. 17). Each of several devices has its own
thread for this.

    StreamCard     a device and its StreamSlots: a stream each, with the buffers of one chunk
    Flights        chunks in flight: sent to a slot, landed when the slot is needed again
    LookAhead      threads that prepare chunks before their turn
    StreamEngine   the three together; exact, levenshtein and ltb derive theirs from it
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, cycle, islice
from typing import Any, Generic, TypedDict, TypeVar

import numpy as np
from numpy.typing import NDArray

from gpu.card.cuda_errors import CudaEngineError, note_devices_in_use, translated_driver_errors
from gpu.card.device import card_active
from gpu.card.intrinsics import context_looked_up_once, cuda
from gpu.card.memory import Budget
from trie.cpu.threads import DONE, in_lanes

Answer = TypeVar("Answer")


@dataclass
class Flight(Generic[Answer]):
    """A chunk in flight on a slot of a device, the ``number``-th of its run.

    buffer: the pinned memory that holds the prepared chunk, or None. Subclasses narrow the types.
    """

    number: int
    card: Any
    slot: Any
    chunk: Any
    buffer: Any

    def send(self) -> None:
        """Queue all device work for the chunk."""
        raise NotImplementedError

    def land(self) -> Answer:
        """Wait for the results."""
        raise NotImplementedError

    def bar(self, row: str) -> AbstractContextManager[None]:
        """Enclose host work, in row "CPU", or queued work; benchmarks draw what ran when."""
        return nullcontext()


@context_looked_up_once
def _send(flight: Flight[Any]) -> None:
    flight.send()


@context_looked_up_once
def _land(flight: Flight[Answer]) -> Answer:
    return flight.land()


class Flights(Generic[Answer]):
    """Chunks in flight, oldest first, at most one on each (card, slot) of ``places``.

    make: a new flight. give_back: receives the buffer of a flight once its answer has been used.
    As a context manager it waits at its end for what is still in flight, so that no copy into a
    buffer continues. Raises CudaEngineError if the driver fails.
    """

    def __init__(
        self,
        make: Callable[..., Flight[Answer]],
        places: Sequence[tuple[Any, Any]],
        give_back: Callable[[Any], None],
    ) -> None:
        self.flying: deque[Any] = deque()
        self.sent = 0
        self._make = make
        self._places = places
        self._turns = cycle(places)
        self._give_back = give_back

    def __enter__(self) -> Flights[Answer]:
        return self

    def __exit__(self, *_: object) -> None:
        while self.flying:
            flight = self.flying.popleft()
            # a failure here also shows in a call that reports it
            with suppress(CudaEngineError), translated_driver_errors(), flight.card.active():
                flight.slot.stream.synchronize()
            self._give_back(flight.buffer)

    def run(self, prepared: Iterable[tuple[Any, Any]]) -> Iterator[Answer]:
        """The answers to all chunks, which come with their buffers and are taken one by one."""
        for chunk, buffer in prepared:
            yield from self.queue(chunk, buffer)
        yield from self.drain()

    def queue(self, chunk: Any, buffer: Any = None) -> Iterator[Answer]:
        """Send a chunk; first, if its slot is in use, yield the oldest answer."""
        if len(self.flying) == len(self._places):
            yield from self._land()
        card, slot = next(self._turns)
        flight = self._make(self.sent, card, slot, chunk, buffer)
        self.flying.append(flight)
        self.sent += 1
        with translated_driver_errors(), card.active():
            _send(flight)

    def drain(self) -> Iterator[Answer]:
        """The answers to all chunks in flight."""
        while self.flying:
            yield from self._land()

    def _land(self) -> Iterator[Answer]:
        flight = self.flying.popleft()
        try:
            with translated_driver_errors(), flight.card.active():
                answer = _land(flight)
            yield answer
        finally:
            self._give_back(flight.buffer)


Chunk = TypeVar("Chunk")
Buffer = TypeVar("Buffer")
Part = Callable[[], object]


class LookAhead(Generic[Chunk, Buffer]):
    """Prepares chunks ahead on ``threads`` threads, each chunk in its own buffer.

    make: returns a new buffer. parts: the work of filling one for a chunk, in parts that can run in
    parallel. most: tasks ahead. chunks_per_task: more than one if they are so short that handing
    over a task, with a wait for the GIL, would take longer.
    """

    def __init__(
        self,
        threads: int,
        make: Callable[[], Buffer],
        parts: Callable[[Chunk, Buffer], Sequence[Part]],
        *,
        most: int,
        chunks_per_task: int = 1,
    ) -> None:
        self._make = make
        self._parts = parts
        self._most = most
        self._chunks_per_task = chunks_per_task
        self._free: list[Buffer] = []
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="ahead")

    def prepared(self, chunks: Iterable[Chunk]) -> Iterator[tuple[Chunk, Buffer]]:
        """The chunks in order with their buffers; chunks are taken when threads need work."""
        waiting = iter(chunks)
        # the first chunk of a group carries the group's tasks
        ahead: deque[tuple[Chunk, Buffer, list[Future[object]]]] = deque()

        def ready() -> tuple[Chunk, Buffer]:
            for task in ahead[0][2]:
                task.result()
            chunk, buffer, _ = ahead.popleft()
            return chunk, buffer

        try:
            while group := list(islice(waiting, self._chunks_per_task)):
                while sum(len(tasks) for _, _, tasks in ahead) >= self._most:
                    yield ready()
                pairs = [(chunk, self._buffer()) for chunk in group]
                parts = [part for pair in pairs for part in self._parts(*pair)]
                if self._chunks_per_task > 1:
                    parts = [partial(_run_all, parts)]
                tasks = [self._pool.submit(part) for part in parts]
                for number, pair in enumerate(pairs):
                    ahead.append((*pair, [] if number else tasks))
            while ahead:
                yield ready()
        finally:
            for _, buffer, tasks in ahead:
                wait(tasks)
                self.give_back(buffer)

    def _buffer(self) -> Buffer:
        if self._free:
            return self._free.pop()
        with translated_driver_errors():
            return self._make()

    def give_back(self, buffer: Buffer | None) -> None:
        """Return a buffer for reuse."""
        if buffer is not None:
            self._free.append(buffer)

    def close(self) -> None:
        """Stop the threads and drop the buffers."""
        self._pool.shutdown()
        self._free.clear()


def _run_all(parts: Sequence[Part]) -> None:
    for part in parts:
        part()


@dataclass(frozen=True, slots=True)
class CardShare:
    """A device by ``number``, and how much of it an engine uses.

    alone: the engine uses no other device. memory_bytes: 0 for nine tenths of the free memory.
    """

    number: int
    alone: bool
    streams: int
    memory_bytes: int


class StreamSlot:
    """A stream; subclasses add the buffers of a chunk. ``number``: its index on the device."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.stream = cuda.stream()


SlotT = TypeVar("SlotT", bound=StreamSlot)


class StreamCard(Generic[SlotT]):
    """A device with its budget and slots; subclasses add what all its chunks share."""

    def __init__(self, share: CardShare, make_slot: Callable[[int, Budget], SlotT]) -> None:
        self._share = share
        with self.active():
            self.budget = Budget(share.memory_bytes)
            self.slots = [make_slot(number, self.budget) for number in range(share.streams)]

    def active(self) -> AbstractContextManager[Any]:
        """Make this the current device in a ``with`` block."""
        return card_active(self._share.number, alone=self._share.alone)

    def close(self) -> None:
        """Free the memory."""
        self.slots.clear()


CardT = TypeVar("CardT", bound=StreamCard[Any])
Taken = TypeVar("Taken")
Chunks = Iterable[tuple[Any, Any]]
"""Prepared chunks with their buffers, taken one by one."""


class StreamOptions(TypedDict, total=False):
    """The options of every engine.

    streams: per device, 2 by default, 1 for the serial loop. cards: device numbers, by default only
    0. memory_bytes: to use on each, 0 for nine tenths of the free memory.
    """

    streams: int
    cards: Sequence[int]
    memory_bytes: int


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
    ) -> None:
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

    def _taken(self, prepared: Chunks, take: Callable[[Answer], Taken]) -> Iterator[Taken]:
        """``take(answer)`` for every chunk, in order; it copies what it needs from the buffers.

        With several devices each has its own thread, which sends, lands and takes its chunks; a
        single chunk needs none.
        """
        if len(self.cards) == 1:
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
        with Flights(self._flight, self._places, self._ahead.give_back) as flights:
            for answer in self._answers(flights, prepared):
                yield take(answer)

    def _answers(self, flights: Flights[Answer], prepared: Chunks) -> Iterator[Answer]:
        """The answers on all slots in turn; subclasses may do more for a chunk."""
        return flights.run(prepared)

    def _on_card(
        self, take: Callable[[Answer], Taken], card: CardT, prepared: Chunks
    ) -> Iterator[Taken]:
        """Yield the results of one device, on its thread."""
        places = [(card, slot) for slot in card.slots]
        with Flights(self._flight, places, self._ahead.give_back) as flights:
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
