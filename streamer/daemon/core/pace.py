"""How fast replay may go: the daemon's own batches come first, replay uses the spare CPU time.

Low priority is not enough. What replay sends has to be read, often by clients on the same machine,
whose CPU time competes with the daemon's. So while batches are being committed, replay also pauses
if there are fewer cores than threads that want one.
"""

from __future__ import annotations

import math

# this long after a commit, further commits are expected
_LIVE_SECONDS = 0.5
# cores are contended if the time waiting for one exceeds this fraction of the time on one
_CONTENDED = 0.25
# pause, as a multiple of the working time: the first, the longest, and what is rounded down to none
_FIRST, _MOST, _NONE = 1.0, 4.0, 0.1
_EASED = 0.7
# the longest pause, since requests wait for its end
_MOST_SECONDS = 0.05


class Pace:
    """How long to pause between two bursts. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._committed = -math.inf
        self._times = 0.0

    def committed(self, now: float) -> None:
        """There are new records."""
        self._committed = now

    def pause(self, now: float, working: float, waiting: float) -> float:
        """Seconds to pause after a burst of ``working`` seconds on a core, ``waiting`` for one."""
        if waiting > _CONTENDED * working:
            self._times = min(max(_FIRST, 2 * self._times), _MOST)
        else:
            self._times *= _EASED
            if self._times < _NONE:
                self._times = 0.0
        if now - self._committed > _LIVE_SECONDS:
            return 0.0
        return min(self._times * working, _MOST_SECONDS)
