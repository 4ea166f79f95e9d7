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

Sums = dict[tuple[str, Kind | Literal["bytes"]], float]
"""Seconds by stage and kind, and bytes."""


class Stages:
    """The seconds and bytes of stages, by name, in the order in which data passes them."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.shared: set[str] = set()
        """Stages that several threads work on at a time."""
        self._own = threading.local()
        self._sums: list[Sums] = []
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
        sums = own.copy()
        try:
            yield
        finally:
            own.clear()
            own.update(sums)

    def restart(self) -> None:
        """Forget all seconds and bytes, and the stages that this thread is in."""
        self._sums.clear()
        self._own = threading.local()

    def all(self) -> list[Sums]:
        """Return the seconds and bytes of all threads."""
        return self._sums

    def add_all(self, counted: list[Sums]) -> None:
        """Add what ``all`` returned in another process."""
        self._sums += counted

    def count(self, name: str, size: int) -> None:
        """Count bytes that a stage has produced."""
        self._of_thread()[0][name, "bytes"] += size

    def seconds(self, name: str, kind: Kind) -> float:
        """Return the seconds of all threads."""
        return sum(sums.get((name, kind), 0.0) for sums in list(self._sums))

    def size(self, name: str) -> int:
        """The bytes counted so far."""
        return int(sum(sums.get((name, "bytes"), 0) for sums in list(self._sums)))
