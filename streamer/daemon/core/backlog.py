"""Which subscriber holds up more of the daemon's memory than it may.

What waits for all subscribers together is known in bytes, what waits for each is not. But a
connection that takes what it is sent drains its buffer in the kernel again and again, and one that
has stopped does not even change how full that is. One look tells little: right after a burst all
are full, and where cores are few, seconds may pass between two looks. So a connection is judged by
several looks, all while much waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

# so long a connection may need for a burst, in seconds; and memory is freed after an end
_PATIENCE = 0.25
_LEAST_LOOKS = 8
_BETWEEN_LOOKS, _AT_LEAST_EVERY = 0.005, 1.0
# of what a buffer has held at most, what counts as drained
_DRAINED = 4
# of the limit, what is so little that nobody is behind
_LITTLE = 4


@dataclass(slots=True)
class _Behind:
    """A connection whose buffer was not seen drained since then; when it last changed."""

    since: float
    queued: int
    moved: float
    looks: int = 0


class Slow(NamedTuple):
    """The connection to end: for how long it was not seen to drain, and not to take anything.

    queued: bytes in its buffer in the kernel. looks: at it in this time.
    """

    connection: int
    behind_seconds: float
    still_seconds: float
    queued: int
    looks: int


class Backlog:
    """Connections of subscribers, by any number, and which of them are behind.

    limit: bytes that may wait, for all of them together.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        # of each the most that its buffer has held
        self._most: dict[int, int] = {}
        self._behind: dict[int, _Behind] = {}
        self._looked = self._ended = float("-inf")

    @property
    def connections(self) -> Iterable[int]:
        """Those that may be asked for."""
        return self._most.keys()

    def add(self, connection: int) -> None:
        """A connection subscribes."""
        self._most.setdefault(connection, 0)

    def wants_look(self, held: int, now: float) -> bool:
        """Whether to look at the connections; held: bytes that wait, now: monotonic seconds."""
        much = self.much(held)
        if not much:
            self._behind.clear()
        return now - self._looked >= (_BETWEEN_LOOKS if much else _AT_LEAST_EVERY)

    def much(self, held: int) -> bool:
        """Whether somebody may be behind."""
        return held > self._limit // _LITTLE

    def look(self, queued: Mapping[int, int], held: int, now: float) -> Slow | None:
        """Which connection to end, if any, by the bytes in the kernel's buffer of each.

        queued: of every connection that is still there. It is one that was behind all the time for
        a quarter of a second and several looks: the one that has been still for longest, or if all
        take what they are sent the one that has been behind for longest.
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
