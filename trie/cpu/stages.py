"""Where threads that share a piece of work spend their time: stage by stage, busy or waiting.

A stage inside another one pauses it, so no second counts twice. Each thread has its own sums; they
are added up on request. A stage of the stream also records its progress, for any other thread.
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


class StageWork:
    """Plain attributes, so that recording a step costs less than a microsecond.

    done: counts any kind of progress. taken: items begun but not finished. trouble: what the stage
    waits for between steps, if anything keeps it from continuing.
    """

    __slots__ = ("_clock", "_step", "done", "held_up", "taken", "trouble")

    def __init__(self) -> None:
        self.done = 0
        self.taken = 0
        self.trouble = ""
        self.held_up = False
        """Whether the current step waits for a later stage."""
        self._step = ""
        # replaced as a whole: busy seconds before the current step, and when that began
        self._clock: tuple[float, float | None] = 0.0, None

    @property
    def waits_for(self) -> str:
        """The resource that the stage waits for, "" if it only waits for work."""
        return self._step or self.trouble

    @property
    def busy_seconds(self) -> float:
        """Seconds in steps so far; never less than before."""
        # read the time first: a step that ends meanwhile has lasted at least until then
        now = time.monotonic()
        busy, since = self._clock
        return busy if since is None else busy + max(0.0, now - since)

    def step(self, waits_for: str) -> StageWork:
        """A step of work, as a context manager; waits_for: what the step needs to end."""
        self._step = waits_for
        self._clock = self._clock[0], time.monotonic()
        return self

    def wait(self, waits_for: str) -> StageWork:
        """A wait for a later stage, as a context manager; it does not count as busy."""
        self._step, self.held_up = waits_for, True
        return self

    def __enter__(self) -> StageWork:
        return self

    def __exit__(self, *_: object) -> None:
        busy, since = self._clock
        if since is not None:
            self._clock = busy + time.monotonic() - since, None
        self._step, self.held_up = "", False
