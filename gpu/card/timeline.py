"""What ran when: timed on the host by its clock, on the GPU by CUDA events (thesis Fig. 40, 41)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from gpu.card.intrinsics import cuda

ROWS = ("HtoD", "kernel", "DtoH", "CPU", "enlarge")
"""``enlarge``: the k-mer set moves to a larger table."""


@dataclass(frozen=True, slots=True)
class Activity:
    """One bar: its row, chunk and stream, begin and end in milliseconds."""

    row: str
    chunk: int
    stream: int
    begin: float
    end: float


class Timeline:
    """Collects activities while an engine runs on one device."""

    def __init__(self) -> None:
        self._host: list[Activity] = []
        self._device: list[tuple[str, int, int, Any, Any]] = []
        cuda.synchronize()
        self._zero = cuda.event()
        self._zero.record()
        self._zero.synchronize()
        self._clock = time.perf_counter()

    @contextmanager
    def device(self, row: str, chunk: int, number: int, stream: Any) -> Iterator[None]:
        """Record what a ``with`` block queues on ``stream``, the ``number``-th, as a bar."""
        begin, end = cuda.event(), cuda.event()
        begin.record(stream)
        yield
        end.record(stream)
        self._device.append((row, chunk, number, begin, end))

    @contextmanager
    def host(self, chunk: int, number: int, row: str = "CPU") -> Iterator[None]:
        """Record the host's time in a ``with`` block, working or waiting, as a bar."""
        begin = time.perf_counter() - self._clock
        yield
        end = time.perf_counter() - self._clock
        self._host.append(Activity(row, chunk, number, 1e3 * begin, 1e3 * end))

    def activities(self) -> list[Activity]:
        """Wait for the device; all bars, sorted by begin."""
        cuda.synchronize()
        queued = [
            Activity(
                row, chunk, number, self._zero.elapsed_time(begin), self._zero.elapsed_time(end)
            )
            for row, chunk, number, begin, end in self._device
        ]
        return sorted(self._host + queued, key=lambda bar: bar.begin)
