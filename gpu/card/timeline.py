"""What ran when: the host by its clock, the card by CUDA events (thesis Fig. 40, 41)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from gpu.card.intrinsics import cuda

ROWS = ("HtoD", "kernel", "DtoH", "CPU", "enlarge")
"""``enlarge``: the set of k-mers moves to a larger table."""


@dataclass(frozen=True, slots=True)
class Activity:
    """One bar: its row, the chunk and the stream it belongs to, milliseconds from the beginning."""

    row: str
    chunk: int
    stream: int
    begin: float
    end: float


class Timeline:
    """Collects activities while an engine runs; one card."""

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
        """What is queued on ``stream`` (the engine's stream ``number``) in the block is one bar."""
        begin, end = cuda.event(), cuda.event()
        begin.record(stream)
        yield
        end.record(stream)
        self._device.append((row, chunk, number, begin, end))

    @contextmanager
    def host(self, chunk: int, number: int, row: str = "CPU") -> Iterator[None]:
        """What the host does in the block, or waits for, is one bar of that row."""
        begin = time.perf_counter() - self._clock
        yield
        end = time.perf_counter() - self._clock
        self._host.append(Activity(row, chunk, number, 1e3 * begin, 1e3 * end))

    def activities(self) -> list[Activity]:
        """All bars, by their begin; waits for the card."""
        cuda.synchronize()
        queued = [
            Activity(
                row, chunk, number, self._zero.elapsed_time(begin), self._zero.elapsed_time(end)
            )
            for row, chunk, number, begin, end in self._device
        ]
        return sorted(self._host + queued, key=lambda bar: bar.begin)
