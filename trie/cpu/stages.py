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

Sums = dict[tuple[str, Kind], float]
"""Seconds by stage and kind."""


class Stages:
    """The seconds and bytes of stages, by name, in the order in which data passes them."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.shared: set[str] = set()
        """Stages that several threads work on at a time."""
        self._own = threading.local()
        self._sums: list[Sums] = []
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

    def _of_thread(self) -> tuple[Sums, list[tuple[str, Kind]]]:
        """The sums of this thread, and the stages that it is in."""
        try:
            return self._own.sums, self._own.running
        except AttributeError:
            self._own.sums, self._own.running = defaultdict(float), []
            self._sums.append(self._own.sums)
            return self._own.sums, self._own.running

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Do not count what is done in the context, which is done again."""
        own = self._of_thread()[0]
        sums, sizes = own.copy(), self._bytes.copy()
        try:
            yield
        finally:
            own.clear()
            own.update(sums)
            self._bytes = sizes

    def restart(self) -> None:
        """Forget all seconds and bytes, and the stages that this thread is in."""
        self._sums.clear()
        self._bytes.clear()
        self._own = threading.local()

    def all(self) -> tuple[Sums, dict[str, int]]:
        """Return the seconds of all threads, and the bytes."""
        total: Sums = defaultdict(float)
        for sums in list(self._sums):
            for key, seconds in sums.items():
                total[key] += seconds
        return total, self._bytes

    def add_all(self, counted: tuple[Sums, dict[str, int]]) -> None:
        """Add what ``all`` returned in another process."""
        for (name, kind), seconds in counted[0].items():
            self.add(name, kind, seconds)
        for name, size in counted[1].items():
            self.count(name, size)

    def count(self, name: str, size: int) -> None:
        """Count bytes that a stage has produced; one thread at a time may do so for a stage."""
        self._bytes[name] = self._bytes.get(name, 0) + size

    def seconds(self, name: str, kind: Kind) -> float:
        """Return the seconds of all threads."""
        return sum(sums.get((name, kind), 0.0) for sums in list(self._sums))

    def size(self, name: str) -> int:
        """The bytes counted so far."""
        return self._bytes.get(name, 0)
