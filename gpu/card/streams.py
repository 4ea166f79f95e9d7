"""Chunks on several streams, answered in order (thesis 3.3.12).

    threads    prepare | prepare | prepare | ...
    stream A             HtoD | kernels | DtoH |      answer | HtoD | kernels | ...
    stream B                    HtoD | kernels | DtoH |        answer | HtoD | ...

``Flights`` queues a chunk on every place in turn, and waits for one only when its place is needed
again (thesis Fig. 20); one place alone is the serial loop (Fig. 17). ``Ahead`` has threads prepare
chunks before their turn, in parts that are begun in order: so the first chunk is ready soon, and no
thread is ever woken for one chunk, which takes as long as its work.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import cycle
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from gpu.card.timeline import Timeline

Place = TypeVar("Place")
Chunk = TypeVar("Chunk")
Flight = TypeVar("Flight")
Answer = TypeVar("Answer")
Buffer = TypeVar("Buffer")


@dataclass(frozen=True, slots=True)
class BatchChunk:
    """The symbols [origin, stop) of a batch, asked for the ends behind ``start``."""

    number: int
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
    bases: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    ends: range,
    overlap: int,
) -> Iterator[BatchChunk]:
    """The ends of a batch in chunks of ``ends.step``, each with ``overlap`` symbols before them."""
    for number, start in enumerate(ends):
        stop = min(start + ends.step, ends.stop)
        yield BatchChunk(number, bases, offsets, max(start - overlap, 0), start, stop)


class Flights(Generic[Place, Chunk, Flight, Answer]):
    """Chunks under way, the oldest first, at most one on each of ``places``.

    send: queues a chunk on a place. land: waits for it and answers. leave: waits for one that
    nobody wants any more, so that no copy into a buffer is left under way.
    """

    def __init__(
        self,
        places: Sequence[Place],
        send: Callable[[Place, Chunk], Flight],
        land: Callable[[Flight], Answer],
        leave: Callable[[Flight], None],
    ) -> None:
        self._most = len(places)
        self._turns = cycle(places)
        self._send = send
        self._land = land
        self._leave = leave
        self._flying: deque[Flight] = deque()

    def run(self, chunks: Iterable[Chunk]) -> Iterator[Answer]:
        """The answers to all chunks, which are asked for one by one."""
        try:
            for chunk in chunks:
                yield from self.queue(chunk)
            yield from self.drain()
        finally:
            while self._flying:
                self._leave(self._flying.popleft())

    def queue(self, chunk: Chunk) -> Iterator[Answer]:
        """Send a chunk; before, the answer to the oldest if its place is needed."""
        if len(self._flying) == self._most:
            yield self._land(self._flying.popleft())
        self._flying.append(self._send(next(self._turns), chunk))

    def drain(self) -> Iterator[Answer]:
        """The answers to all that is under way."""
        while self._flying:
            yield self._land(self._flying.popleft())


class Ahead(Generic[Chunk, Buffer]):
    """Has ``threads`` prepare chunks before their turn, each in a buffer of its own.

    make: a new buffer. parts: the work of filling one for a chunk, in parts that any threads may
    do side by side. A buffer is used again once it has been given back.
    """

    def __init__(
        self,
        threads: int,
        make: Callable[[], Buffer],
        parts: Callable[[Chunk, Buffer], Sequence[Callable[[], None]]],
    ) -> None:
        self._threads = threads
        self._make = make
        self._parts = parts
        self._free: list[Buffer] = []
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="ahead")

    def prepared(self, chunks: Iterable[Chunk]) -> Iterator[tuple[Chunk, Buffer]]:
        """The chunks in order, with their buffers; they are asked for as threads need work."""
        ahead: deque[tuple[Chunk, Buffer, list[Future[None]]]] = deque()

        def ready() -> tuple[Chunk, Buffer]:
            for part in ahead[0][2]:
                part.result()
            chunk, buffer, _ = ahead.popleft()
            return chunk, buffer

        try:
            for chunk in chunks:
                while sum(len(parts) for _, _, parts in ahead) >= 2 * self._threads:
                    yield ready()
                buffer = self._free.pop() if self._free else self._make()
                parts = [self._pool.submit(part) for part in self._parts(chunk, buffer)]
                ahead.append((chunk, buffer, parts))
            while ahead:
                yield ready()
        finally:
            for _, buffer, parts in ahead:
                wait(parts)
                self.give_back(buffer)

    def give_back(self, buffer: Buffer) -> None:
        """Nobody reads this buffer any more."""
        self._free.append(buffer)

    def close(self) -> None:
        """End the threads and let go of the buffers."""
        self._pool.shutdown()
        self._free.clear()


def bar(
    timeline: Timeline | None, row: str, chunk: int, number: int, stream: Any = None
) -> AbstractContextManager[None]:
    """What the host does in the block, or with a ``stream`` what is queued on it there, is a bar.

    chunk, number: of the chunk and of its place. Without a timeline nothing is noted.
    """
    if timeline is None:
        return nullcontext()
    if stream is None:
        return timeline.host(chunk, number, row)
    return timeline.device(row, chunk, number, stream)
