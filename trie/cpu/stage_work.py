"""What a stage of the stream has done: noted by its thread, read by any other."""

from __future__ import annotations

import time


class StageWork:
    """Plain attributes, so that noting a step costs less than a microsecond.

    done: counts whatever is progress. taken: items that the stage has begun with and not finished.
    trouble: what the stage waits for between steps, if anything keeps it from going on.
    """

    __slots__ = ("_clock", "_step", "done", "held_up", "taken", "trouble")

    def __init__(self) -> None:
        self.done = 0
        self.taken = 0
        self.trouble = ""
        self.held_up = False
        """Whether the step in work waits for a later stage."""
        self._step = ""
        # replaced as a whole: busy seconds before the step in work, and when that began
        self._clock: tuple[float, float | None] = 0.0, None

    @property
    def waits_for(self) -> str:
        """What the stage waits for now, "" if it waits for work alone."""
        return self._step or self.trouble

    @property
    def busy_seconds(self) -> float:
        """Seconds in steps so far; never less than before."""
        # the time comes first: a step that ends meanwhile has lasted at least until then
        now = time.monotonic()
        busy, since = self._clock
        return busy if since is None else busy + max(0.0, now - since)

    def step(self, waits_for: str) -> StageWork:
        """A step of work, as a context; waits_for: what it takes to end."""
        self._step = waits_for
        self._clock = self._clock[0], time.monotonic()
        return self

    def wait(self, waits_for: str) -> StageWork:
        """A wait for a later stage, as a context; it is not counted as busy."""
        self._step, self.held_up = waits_for, True
        return self

    def __enter__(self) -> StageWork:
        return self

    def __exit__(self, *_: object) -> None:
        busy, since = self._clock
        if since is not None:
            self._clock = busy + time.monotonic() - since, None
        self._step, self.held_up = "", False
