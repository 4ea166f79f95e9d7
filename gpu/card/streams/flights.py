"""Chunks in flight: sent to a slot, landed when the slot is needed again."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from itertools import cycle
from typing import Any, Generic, TypeVar

from gpu.card.cuda_errors import CudaEngineError, translated_driver_errors
from gpu.card.intrinsics import context_looked_up_once
from gpu.card.timeline import Timeline

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
    timeline: Timeline | None

    def send(self) -> None:
        """Queue all device work for the chunk."""
        raise NotImplementedError

    def land(self) -> Answer:
        """Wait for the results."""
        raise NotImplementedError

    def bar(self, row: str) -> AbstractContextManager[None]:
        """Record a ``with`` block in that timeline row: host work in "CPU", else queued work."""
        if self.timeline is None:
            return nullcontext()
        if row == "CPU":
            return self.timeline.host(self.number, self.slot.number)
        return self.timeline.device(row, self.number, self.slot.number, self.slot.stream)


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
        timeline: Timeline | None,
    ) -> None:
        self.flying: deque[Any] = deque()
        self.sent = 0
        self._make = make
        self._places = places
        self._turns = cycle(places)
        self._give_back = give_back
        self._timeline = timeline

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
        flight = self._make(self.sent, card, slot, chunk, buffer, self._timeline)
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
