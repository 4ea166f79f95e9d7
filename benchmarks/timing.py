"""Times runs: the least of several by a clock of the host, the median by CUDA events.

``Timeline`` records what ran when on a device and the host (thesis Fig. 40, 41).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, TypeVar
from unittest.mock import patch

import numpy as np

from trie.cpu.threads import usable_cores

T = TypeVar("T")

COPIED_BYTES = 1 << 30  # what a large GPU copies in half a millisecond


def least_seconds(
    run: Callable[[], object],
    repeats: int,
    *,
    clock: Callable[[], float] = time.perf_counter,
    warm: bool = True,
) -> float:
    """The least seconds of ``repeats`` runs by ``clock``, more than 0.

    warm: whether to run once before, uncounted, since the first run may compile.
    """
    return least_and_result(run, repeats, clock=clock, warm=warm)[0]


def least_and_result(
    run: Callable[[], T],
    repeats: int,
    *,
    clock: Callable[[], float] = time.perf_counter,
    warm: bool = True,
) -> tuple[float, T]:
    """As ``least_seconds``, and the result of the last run; there is at least one run."""
    if warm:
        run()
    least = float("inf")
    for _ in range(max(repeats, 1)):
        start = clock()
        result = run()
        least = min(least, clock() - start)
    # a CPU clock may not advance while little is done
    return max(least, 1e-9), result


def in_turns(runs: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """The least wall time of each run; they take turns, so that other load affects all equally."""
    least = dict.fromkeys(runs, float("inf"))
    for _ in range(repeats):
        for name, run in runs.items():
            least[name] = min(least[name], least_seconds(run, 1, warm=False))
    return least


def median_on_gpu(
    queue: Callable[[], object],
    repeats: int = 7,
    *,
    enough: float = float("inf"),
    queued: int = 1,
) -> float:
    """The median seconds, by events, of the work that ``queue`` puts on the default stream.

    A first run does not count. Runs end early once they took ``enough`` seconds together. If
    several are ``queued`` at once, they wait behind copies, so the GPU never waits for Python.
    """
    from gpu.card.intrinsics import cuda

    queue()
    cuda.synchronize()
    seconds: list[float] = []
    while len(seconds) < repeats and sum(seconds) <= enough:
        if queued > 1:
            _copy_for_milliseconds()
        begin, end = cuda.event(), cuda.event()
        begin.record()
        for _ in range(queued):
            queue()
        end.record()
        end.synchronize()
        seconds.append(1e-3 * begin.elapsed_time(end) / queued)
    return float(np.median(seconds))


def _copy_for_milliseconds() -> None:
    to, from_ = _large_arrays()
    for _ in range(8):
        to.copy_to_device(from_)


@cache
def _large_arrays() -> list[Any]:
    from gpu.card.intrinsics import cuda

    return [cuda.device_array(COPIED_BYTES, np.uint8) for _ in range(2)]


def by_chunk(
    engine: Callable[..., Any], match: Callable[[Any], object], symbols: int,
    chunks: Iterable[tuple[int, int]],
) -> Iterator[dict[str, float]]:  # fmt: skip
    """A row for each size of chunk and number of streams.

    Symbols a second of an engine, and for each row of its timeline the milliseconds of a chunk.
    """
    for chunk, streams in chunks:
        make = partial(engine, chunk=chunk, streams=streams, threads=usable_cores())
        with closing(make()) as one:
            seconds = least_seconds(partial(match, one), 3)
        timeline = Timeline()
        with closing(make()) as one, timeline.recording():
            match(one)
        spent = timeline_milliseconds(timeline.activities())
        number = -(-symbols // chunk)
        row = {"chunk": chunk, "streams": streams, "symbols/s": symbols / seconds}
        yield row | {f"{name} ms": ms / number for name, ms in spent.items()}


@dataclass(frozen=True, slots=True)
class Activity:
    """One bar: its row, chunk and stream, begin and end in milliseconds.

    row: HtoD, kernel, DtoH, or CPU.
    """

    row: str
    chunk: int
    stream: int
    begin: float
    end: float


class Timeline:
    """Collects activities while an engine runs on one device."""

    def __init__(self) -> None:
        from gpu.card.intrinsics import cuda

        self._cuda = cuda
        self._host: list[Activity] = []
        self._device: list[tuple[str, int, int, Any, Any]] = []
        cuda.synchronize()
        self._zero = cuda.event()
        self._zero.record()
        self._zero.synchronize()
        self._clock = time.perf_counter()

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record the work of every chunk that engines take meanwhile."""
        from gpu.card.streams import Flight

        def bar(flight: Flight[Any], row: str) -> AbstractContextManager[None]:
            number, slot = flight.number, flight.slot
            if row == "CPU":
                return self.host(number, slot.number)
            return self.device(row, number, slot.number, slot.stream)

        with patch.object(Flight, "bar", bar):
            yield

    @contextmanager
    def device(self, row: str, chunk: int, number: int, stream: Any) -> Iterator[None]:
        """Record what a ``with`` block queues on ``stream``, the ``number``-th, as a bar."""
        begin, end = self._cuda.event(), self._cuda.event()
        begin.record(stream)
        yield
        end.record(stream)
        self._device.append((row, chunk, number, begin, end))

    @contextmanager
    def host(self, chunk: int, number: int) -> Iterator[None]:
        """Record the host's time in a ``with`` block, working or waiting, as a bar."""
        begin = time.perf_counter() - self._clock
        yield
        end = time.perf_counter() - self._clock
        self._host.append(Activity("CPU", chunk, number, 1e3 * begin, 1e3 * end))

    def activities(self) -> list[Activity]:
        """Wait for the device; all bars, sorted by begin."""
        self._cuda.synchronize()
        zero = self._zero.elapsed_time
        queued = [
            Activity(row, chunk, number, zero(begin), zero(end))
            for row, chunk, number, begin, end in self._device
        ]
        return sorted(self._host + queued, key=lambda bar: bar.begin)


def timeline_milliseconds(bars: Iterable[Activity]) -> dict[str, float]:
    """Milliseconds in each row of a timeline."""
    spent: dict[str, float] = {}
    for bar in bars:
        spent[bar.row] = spent.get(bar.row, 0.0) + bar.end - bar.begin
    return spent
