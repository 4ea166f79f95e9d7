"""Progress of a stage of the stream, recorded by its thread and read by any other."""

from __future__ import annotations

import time


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
        """What the stage waits for now, "" if it only waits for work."""
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
