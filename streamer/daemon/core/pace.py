"""How fast replay may go: the daemon's own batches come first, and what nobody else needs is used.

A process that yields the CPU to all others still takes it from its own clients' neighbours: what it
sends has to be read, on the same machine. So while batches are being committed it also rests, if it
finds that there are fewer cores than threads that want one.
"""

from __future__ import annotations

import math

# as long as this after a commit, others are expected
_LIVE_SECONDS = 0.5
# waiting for a core, as a part of working on one, that shows that others want it
_CONTENDED = 0.25
# rest, as a multiple of work: at first, at most, and what is forgotten
_FIRST, _MOST, _NONE = 1.0, 4.0, 0.1
_EASED = 0.7
# requests wait as long
_MOST_SECONDS = 0.05


class Pace:
    """When to rest between two bursts. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._committed = -math.inf
        self._times = 0.0

    def committed(self, now: float) -> None:
        """There are new records."""
        self._committed = now

    def rest(self, now: float, worked: float, waited: float) -> float:
        """Seconds to rest after a burst that took so long on a core, and waited so long for one."""
        if waited > _CONTENDED * worked:
            self._times = min(max(_FIRST, 2 * self._times), _MOST)
        else:
            self._times *= _EASED
            if self._times < _NONE:
                self._times = 0.0
        if now - self._committed > _LIVE_SECONDS:
            return 0.0
        return min(self._times * worked, _MOST_SECONDS)
