"""The time of day, and by how much somebody set it: curves over time go on where they were."""

from __future__ import annotations

import time
from collections.abc import Callable

# less is what lies between two looks at a clock on a busy machine
_LEAST_STEP = 0.5


def _since_boot() -> float:
    """Seconds, also those of a machine that slept."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class WallClock:
    """Compares the time of day with a clock that nobody sets."""

    def __init__(
        self, wall: Callable[[], float] = time.time, steady: Callable[[], float] = _since_boot
    ) -> None:
        self._wall, self._steady = wall, steady
        self._apart = wall() - steady()

    def read(self) -> tuple[float, float]:
        """The time in seconds since 1970, and how far it was set forward since the last call.

        The step is 0 unless it is half a second at least, and negative if the clock was set back.
        """
        now = self._wall()
        before, self._apart = self._apart, now - self._steady()
        step = self._apart - before
        return now, step if abs(step) >= _LEAST_STEP else 0.0
