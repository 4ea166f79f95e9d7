"""Simulated time: events happen one after the other, and all randomness comes from one seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from heapq import heappop, heappush
from typing import Any

# nanoseconds since 1970 at which a run begins
_WALL = 1_700_000_000 * 10**9


class Pause(float):
    """Seconds to wait, or less if the thread is woken."""


Steps = Generator[float, None, Any]
"""The steps of a process: between two it waits this many seconds, and may be killed."""


class EventClock:
    """Runs events in the order of their times. trace: called with each line of the trace."""

    def __init__(self, seed: int, trace: Callable[[str], None] | None = None) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.steps = 0
        self._trace = trace
        self._number = 0
        self._events: list[tuple[float, int, Process | None, Callable[[], None]]] = []

    @property
    def wall(self) -> int:
        """Nanoseconds since 1970."""
        return _WALL + int(self.now * 1e9)

    def at(self, time: float, do: Callable[[], None], process: Process | None = None) -> None:
        """Schedule an event at a time, unless the process has ended by then."""
        self._number += 1
        heappush(self._events, (max(time, self.now), self._number, process, do))

    def after(self, seconds: float, do: Callable[[], None]) -> None:
        """Schedule an event after this many seconds, unconditionally."""
        self.at(self.now + seconds, do)

    def run(self, until: float, done: Callable[[], bool] = lambda: False) -> bool:
        """Let time pass; returns whether ``done`` holds by then."""
        while self._events and self._events[0][0] <= until:
            time, _, process, do = heappop(self._events)
            self.now = time
            if process is not None:
                if not process.alive:
                    continue
                if process.stalled_until > time:
                    self.at(process.stalled_until, do, process)
                    continue
                process.stepped()
                if not process.alive:
                    continue
            self.steps += 1
            do()
            if done():
                return True
        self.now = until
        return done()

    def note(self, who: str, what: Callable[[], str] | str) -> None:
        """Add a line to the trace; it is only made if there is a trace."""
        if self._trace is not None:
            text = what if isinstance(what, str) else what()
            self._trace(f"{self.now:12.6f}  {who:12} {text}")


class Process:
    """A process that can be killed, which cancels all its scheduled events."""

    def __init__(self, clock: EventClock, name: str) -> None:
        self.clock = clock
        self.name = name
        self.alive = True
        self.stalled_until = 0.0
        self.at_end: list[Callable[[], None]] = []
        self._steps_left: int | None = None
        self._then: Callable[[], None] = lambda: None

    def note(self, what: Callable[[], str] | str) -> None:
        """Add a line to the trace."""
        self.clock.note(self.name, what)

    def at(self, time: float, do: Callable[[], None]) -> None:
        """Do something at a time."""
        self.clock.at(time, do, self)

    def after(self, seconds: float, do: Callable[[], None]) -> None:
        """Do something after this many seconds."""
        self.clock.at(self.clock.now + seconds, do, self)

    def stall(self, seconds: float) -> None:
        """Do nothing for a while, like a stopped process."""
        self.stalled_until = max(self.stalled_until, self.clock.now + seconds)

    @property
    def doomed(self) -> bool:
        """Whether it is about to be killed."""
        return self._steps_left is not None

    def doom(self, steps: int, then: Callable[[], None]) -> None:
        """Have it killed after this many further steps; ``then`` follows at once."""
        self._steps_left, self._then = steps, then

    def spare(self) -> None:
        """Do not have it killed after all."""
        self._steps_left = None

    def stepped(self) -> None:
        """Another step begins, unless the process is to be killed before it."""
        if self._steps_left is not None:
            self._steps_left -= 1
            if self._steps_left < 0:
                self.kill("between two steps")
                self._then()

    def kill(self, why: str) -> None:
        """End at once."""
        if self.alive:
            self.alive = False
            self.note(f"killed: {why}")
            for do in self.at_end:
                do()


class Thread:
    """Steps of a process, run one after the other; errors that they raise go to ``failed``."""

    # the delay from being woken to running
    _LATENCY = 0.0005

    def __init__(
        self, process: Process, steps: Steps, failed: Callable[[Exception], None] | None = None
    ) -> None:
        self.process = process
        self.ended = False
        self._steps = steps
        self._failed = failed
        self._waits = 0
        self._idle = False
        self._plan(0.0)

    def wake(self) -> None:
        """Continue now, if it is waiting."""
        if self._idle:
            self._idle = False
            latency = self.process.clock.random.expovariate(1 / self._LATENCY)
            self._plan(min(latency, 20 * self._LATENCY))

    def _plan(self, seconds: float) -> None:
        self._waits += 1
        number = self._waits
        self.process.after(seconds, lambda: self._go_on(number))

    def _go_on(self, number: int) -> None:
        if number != self._waits or self.ended:
            return
        self._idle = False
        try:
            seconds = next(self._steps)
        except StopIteration:
            self.ended = True
        except Exception as error:
            self.ended = True
            if self._failed is None:
                raise
            self._failed(error)
        else:
            self._plan(seconds)
            self._idle = isinstance(seconds, Pause)
