"""The novelty curve of a growing dictionary: new k-mers against bases."""

import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

NOVELTY_COLUMNS = ("reads", "bases", "kmers", "new")
MAX_POINTS = 512
"""The most points of a curve, including its end."""


class NoveltyCurve:
    """Cumulative reads, bases and new k-mers, at no more than ``MAX_POINTS`` points; thread-safe.

    There is a point after each read at which the bases pass a multiple of the step. The step is the
    least power of two that gives few enough points, so the curve depends on the stream alone, not
    on how it is cut into batches.

    state: as returned by another curve.
    """

    def __init__(self, state: list[Any] | None = None) -> None:
        self._lock = threading.Lock()
        self._step = 1
        # totals so far: reads, bases, new k-mers
        self._end = (0, 0, 0)
        # int64[points, 3]: the totals at each point
        self._points = np.zeros((0, 3), np.int64)
        if state is not None:
            self._step, reads, bases, kmers, points = state
            self._end = reads, bases, kmers
            self._points = np.frombuffer(points, np.int64).reshape(-1, 3)

    @property
    def state(self) -> list[Any]:
        """Return a state to resume this curve from: integers, with bytes at the end."""
        with self._lock:
            return [self._step, *self._end, self._points.tobytes()]

    def add(self, offsets: NDArray[np.int64], starts: NDArray[np.int64]) -> None:
        """Count a batch of reads.

        offsets: int64[reads + 1], where its reads start, from 0. starts: ascending, the symbols at
        which the windows of new k-mers start.
        """
        with self._lock:
            reads, bases, kmers = self._end
            passed = np.diff((bases + offsets) // self._step) > 0
            at = np.flatnonzero(passed) + 1
            new = np.searchsorted(starts, offsets[at])
            points = np.column_stack((reads + at, bases + offsets[at], kmers + new))
            self._points = np.concatenate((self._points, points))
            self._end = reads + offsets.size - 1, bases + int(offsets[-1]), kmers + starts.size
            self._thin()

    def add_lump(self, reads: int, bases: int, kmers: int) -> None:
        """Count reads of which only the totals are known, as if they were one read."""
        if reads:
            # empty reads, except the last
            offsets = np.zeros(reads + 1, np.int64)
            offsets[-1] = bases
            self.add(offsets, np.zeros(kmers, np.int64))

    def columns(self) -> dict[str, NDArray[np.int64]]:
        """Return the curve's columns, int64[points] each: totals, and changes since the last point.

        The last point is the end of the stream.
        """
        with self._lock:
            points = self._points
            if self._end[0] and (not len(points) or tuple(points[-1].tolist()) != self._end):
                points = np.concatenate((points, np.array([self._end], np.int64)))
        new = np.diff(points[:, 2], prepend=0)
        values = (*points.T, new)
        return dict(zip(NOVELTY_COLUMNS, map(np.ascontiguousarray, values), strict=True))

    def last(self) -> list[int] | None:
        """Return the last row; None before the first read."""
        row = [int(values[-1]) for values in self.columns().values() if values.size]
        return row or None

    def _thin(self) -> None:
        while len(self._points) >= MAX_POINTS:
            self._step *= 2
            cells = self._points[:, 1] // self._step
            self._points = self._points[np.diff(cells, prepend=0) > 0]
