"""How long batches took, as a histogram."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterable

BOUNDS = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
    1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip
"""The upper bound of each bucket, in seconds; a last bucket counts longer ones."""


class Durations:
    """Written by one thread, read by any. counts: one for each bucket. seconds: the sum of all."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.seconds = 0.0

    def add(self, begun: Iterable[float]) -> None:
        """Count batches that end now. begun: when each began, in monotonic seconds."""
        now = time.monotonic()
        for at in begun:
            passed = now - at
            self.counts[bisect_left(BOUNDS, passed)] += 1
            self.seconds += passed
