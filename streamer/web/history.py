"""A curve of bounded length over a run of any length.

There is a point for each cell of ``step`` seconds. When there are too many, the step doubles and
two points become one; so a page that is open for a day holds as much as one that is open for ten
minutes.
"""

from __future__ import annotations

from typing import NamedTuple

MAX_POINTS = 600


class Point(NamedTuple):
    """The state at ``time``, in seconds since 1970.

    reads, bases: so far. waiting: bytes of batches at ingest. p50, p99: seconds from the acceptance
    of a batch to its publication since the point before, None without a batch.
    """

    time: float
    reads: int
    bases: int
    waiting: int
    p50: float | None
    p99: float | None


class History:
    """Points in order of time. thinned: how often two became one."""

    def __init__(self, step: float = 1.0) -> None:
        self.points: list[Point] = []
        self.thinned = 0
        self._step = step

    def add(self, point: Point) -> bool:
        """Add a point; whether it stands in place of the last one, being of the same cell."""
        if not self.points or self._cell(self.points[-1]) < self._cell(point):
            self.points.append(point)
            if len(self.points) > MAX_POINTS:
                self._thin()
            return False
        self.points[-1] = _joined(self.points[-1], point)
        return True

    def shift(self, seconds: float) -> None:
        """The clock was set: points lie as far before the present as they did."""
        self.points = [point._replace(time=round(point.time + seconds, 1)) for point in self.points]

    def _cell(self, point: Point) -> int:
        return int(point.time // self._step)

    def _thin(self) -> None:
        self.thinned += 1
        self._step *= 2
        points, self.points = self.points, []
        for point in points:
            self.add(point)


def _joined(before: Point, point: Point) -> Point:
    """One point for both: counts as they are now, of times and latencies the larger one."""
    return point._replace(
        time=max(before.time, point.time),
        p50=_larger(before.p50, point.p50),
        p99=_larger(before.p99, point.p99),
    )


def _larger(one: float | None, other: float | None) -> float | None:
    known = [value for value in (one, other) if value is not None]
    return max(known, default=None)
