"""Chunks on several streams, answered in order (thesis 3.3.12).

    threads    prepare | prepare | prepare | ...
    stream A             HtoD | kernels | DtoH |      answer | HtoD | kernels | ...
    stream B                    HtoD | kernels | DtoH |        answer | HtoD | ...

``Flights`` queues a chunk on every place in turn, and waits for one only when its place is needed
again (thesis Fig. 20); one place alone is the serial loop (Fig. 17). ``Ahead`` has threads prepare
chunks before their turn, a chunk a thread: to wake sixteen threads for one chunk takes as long as
its work.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from itertools import cycle
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from gpu.engine.timeline import Timeline

Place = TypeVar("Place")
Chunk = TypeVar("Chunk")
Flight = TypeVar("Flight")
Answer = TypeVar("Answer")
Buffer = TypeVar("Buffer")


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
    """Prepares up to ``threads`` chunks before their turn, each in a buffer of its own.

    make: a new buffer. prepare: fills one for a chunk, in any thread. A buffer is used again once
    it has been given back.
    """

    def __init__(
        self,
        threads: int,
        make: Callable[[], Buffer],
        prepare: Callable[[Chunk, Buffer], None],
    ) -> None:
        self._threads = threads
        self._make = make
        self._prepare = prepare
        self._free: list[Buffer] = []
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="ahead")

    def prepared(self, chunks: Iterable[Chunk]) -> Iterator[tuple[Chunk, Buffer]]:
        """The chunks in order, with their buffers."""
        ahead: deque[tuple[Chunk, Buffer, Future[None]]] = deque()

        def ready() -> tuple[Chunk, Buffer]:
            ahead[0][2].result()
            chunk, buffer, _ = ahead.popleft()
            return chunk, buffer

        try:
            for chunk in chunks:
                if len(ahead) == self._threads:
                    yield ready()
                buffer = self._free.pop() if self._free else self._make()
                ahead.append((chunk, buffer, self._pool.submit(self._prepare, chunk, buffer)))
            while ahead:
                yield ready()
        finally:
            for _, buffer, work in ahead:
                work.exception()
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


def part_of(offsets: NDArray[np.int64], start: int, stop: int) -> NDArray[np.int64]:
    """Offsets of the (parts of) reads inside symbols [start, stop), counted from ``start``."""
    first = int(np.searchsorted(offsets, start, side="right")) - 1
    last = int(np.searchsorted(offsets, stop, side="left"))
    return np.clip(offsets[first : last + 1], start, stop) - start
