"""Threads that prepare chunks before their turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from itertools import islice
from typing import Generic, TypeVar

from gpu.card.cuda_errors import translated_driver_errors

Chunk = TypeVar("Chunk")
Buffer = TypeVar("Buffer")
Part = Callable[[], object]


class LookAhead(Generic[Chunk, Buffer]):
    """Prepares chunks ahead on ``threads`` threads, each chunk in its own buffer.

    make: returns a new buffer. parts: the work of filling one for a chunk, in parts that can run in
    parallel. most: tasks ahead. together: chunks per task, more than one if they are so short that
    handing over a task, with a wait for the GIL, would take longer.
    """

    def __init__(
        self,
        threads: int,
        make: Callable[[], Buffer],
        parts: Callable[[Chunk, Buffer], Sequence[Part]],
        *,
        most: int,
        together: int = 1,
    ) -> None:
        self._make = make
        self._parts = parts
        self._most = most
        self._together = together
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
            while group := list(islice(waiting, self._together)):
                while sum(len(tasks) for _, _, tasks in ahead) >= self._most:
                    yield ready()
                pairs = [(chunk, self._buffer()) for chunk in group]
                parts = [part for pair in pairs for part in self._parts(*pair)]
                if self._together > 1:
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
