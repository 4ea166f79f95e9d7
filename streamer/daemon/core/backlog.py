"""Finds the subscriber that makes the daemon hold too much memory.

The daemon knows how many bytes wait for all subscribers together, but not how many wait for each.
However, a connection whose peer reads drains its kernel buffer again and again, while that of a
peer that has stopped stays equally full. A single observation tells little: right after a burst all
buffers are full, and on few cores seconds may pass between two observations. So a connection is
judged by several observations, all made while much is waiting.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

# seconds that a connection may take for a burst, and that libzmq may take to free memory after one
# has been ended
_PATIENCE = 0.25
_LEAST_LOOKS = 8
_BETWEEN_LOOKS, _AT_LEAST_EVERY = 0.005, 1.0
# a buffer counts as drained below this fraction (1/n) of the most that it has held
_DRAINED = 4
# below this fraction (1/n) of the limit nobody counts as behind
_LITTLE = 4


@dataclass(slots=True)
class _Behind:
    """A connection whose buffer has not drained since ``since``; it last changed at ``moved``."""

    since: float
    queued: int
    moved: float
    looks: int = 0


class Slow(NamedTuple):
    """The connection to end: for how long it has not drained, and for how long it has read nothing.

    queued: bytes in its kernel buffer. looks: how often it was observed in this time.
    """

    connection: int
    behind_seconds: float
    still_seconds: float
    queued: int
    looks: int


class Backlog:
    """The connections of subscribers, each named by an integer, and which of them are behind.

    limit: bytes that may wait for all of them together.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        # by connection: the most that its buffer has held
        self._most: dict[int, int] = {}
        self._behind: dict[int, _Behind] = {}
        self._looked = self._ended = float("-inf")

    @property
    def connections(self) -> Iterable[int]:
        """All known connections."""
        return self._most.keys()

    def add(self, connection: int) -> None:
        """Add a connection that subscribes."""
        self._most.setdefault(connection, 0)

    def wants_look(self, held: int, now: float) -> bool:
        """Whether to look at the connections; held: bytes that wait, now: monotonic seconds."""
        much = self.much(held)
        if not much:
            self._behind.clear()
        return now - self._looked >= (_BETWEEN_LOOKS if much else _AT_LEAST_EVERY)

    def much(self, held: int) -> bool:
        """Whether so much waits that a subscriber may be behind."""
        return held > self._limit // _LITTLE

    def look(self, queued: Mapping[int, int], held: int, now: float) -> Slow | None:
        """Return the connection to end, if any.

        queued: bytes in the kernel buffer of each open connection. Candidates have been behind for
        a quarter of a second and several observations: of these the one that has read nothing for
        longest, or if all of them read, the one that has been behind for longest.
        """
        self._looked = now
        for connection in self._most.keys() - queued.keys():
            self._forget(connection)
        for connection, size in queued.items():
            self._note(connection, size, now)
        if held <= self._limit or now - self._ended < _PATIENCE:
            return None
        slow = [
            Slow(connection, now - one.since, now - one.moved, one.queued, one.looks)
            for connection, one in self._behind.items()
            if now - one.since >= _PATIENCE and one.looks >= _LEAST_LOOKS
        ]
        if not slow:
            return None
        slowest = max(slow, key=_slowness)
        self._ended = now
        self._forget(slowest.connection)
        return slowest

    def _note(self, connection: int, size: int, now: float) -> None:
        most = self._most[connection] = max(size, self._most.get(connection, 0))
        if size * _DRAINED <= most:
            self._behind.pop(connection, None)
            return
        one = self._behind.setdefault(connection, _Behind(now, size, now))
        one.looks += 1
        if size != one.queued:
            one.queued, one.moved = size, now

    def _forget(self, connection: int) -> None:
        self._most.pop(connection, None)
        self._behind.pop(connection, None)


def _slowness(slow: Slow) -> tuple[bool, float]:
    still = slow.still_seconds >= _PATIENCE
    return still, slow.still_seconds if still else slow.behind_seconds
