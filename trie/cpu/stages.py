"""Where threads that share a piece of work spend their time: stage by stage, busy or waiting.

A stage inside another one pauses it, so no second counts twice. Each thread has its own sums; they
are added up on request.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

Kind = Literal["busy", "input", "output"]
"""How time is spent: at work, waiting for input, or waiting for room for output."""

_Sums = dict[tuple[str, Kind], float]


class Stages:
    """The seconds and bytes of stages, by name, in the order in which data passes them."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.shared: set[str] = set()
        """Stages that several threads work on at a time."""
        self._own = threading.local()
        self._sums: list[_Sums] = []
        self._bytes: dict[str, int] = dict.fromkeys(names, 0)
        self.began = time.perf_counter()

    @contextmanager
    def spent(self, name: str, kind: Kind = "busy") -> Iterator[None]:
        """Count the time spent in the context."""
        sums, running = self._of_thread()
        begin = time.perf_counter()
        if running:
            sums[running[-1]] += begin - self._own.since
        running.append((name, kind))
        self._own.since = begin
        try:
            yield
        finally:
            end = time.perf_counter()
            sums[running.pop()] += end - self._own.since
            self._own.since = end

    def add(self, name: str, kind: Kind, seconds: float) -> None:
        """Count seconds in which a stage could not continue but no thread waited."""
        self._of_thread()[0][name, kind] += seconds

    def _of_thread(self) -> tuple[_Sums, list[tuple[str, Kind]]]:
        """The sums of this thread, and the stages that it is in."""
        try:
            return self._own.sums, self._own.running
        except AttributeError:
            self._own.sums, self._own.running = defaultdict(float), []
            self._sums.append(self._own.sums)
            return self._own.sums, self._own.running

    def count(self, name: str, size: int) -> None:
        """Count bytes that a stage has produced; one thread at a time may do so for a stage."""
        self._bytes[name] = self._bytes.get(name, 0) + size

    def seconds(self, name: str, kind: Kind) -> float:
        """The seconds of all threads."""
        return sum(sums.get((name, kind), 0.0) for sums in list(self._sums))

    def size(self, name: str) -> int:
        """The bytes counted so far."""
        return self._bytes.get(name, 0)
