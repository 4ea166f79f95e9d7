"""Finds the subscribers that make the daemon hold too much memory.

The daemon knows how many bytes wait for all subscribers together, but not how many wait for each.
However, a connection whose peer reads drains its kernel buffer again and again, while that of a
peer that has stopped stays equally full. What waits for a connection was sent after its buffer was
last seen drained: so the connection for which that is longest ago, in bytes sent since, is the
slowest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

# seconds without any change of its buffer after which a peer counts as stopped, and that a peer
# that reads may take for a burst
_PATIENCE = 0.1
_AT_MOST_EVERY, _AT_LEAST_EVERY = 0.005, 1.0
# a buffer counts as drained below this fraction (1/n) of the most that it has held
_DRAINED = 4
# below this fraction (1/n) of the limit there is no need to look at the buffers
_LITTLE = 4
# connections are equally slow if no more than this fraction (1/n) of the limit was sent in between
_ALIKE = 16


@dataclass(slots=True)
class _Buffer:
    """The kernel buffer of a connection. most: bytes that it has held. moved: when it changed last.

    drained: the bytes sent to all subscribers before it was last seen drained.
    """

    moved: float
    drained: int
    queued: int = 0
    most: int = 0


class Backlog:
    """The connections of subscribers, each named by an integer.

    limit: bytes that may wait for all of them together. Times are monotonic seconds. sent: bytes
    sent so far.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffers: dict[int, _Buffer] = {}
        self._looked, self._sent = float("-inf"), 0

    @property
    def connections(self) -> Iterable[int]:
        """All known connections."""
        return self._buffers.keys()

    def add(self, connection: int, sent: int, now: float) -> None:
        """Add a connection that subscribes, if it is a new one."""
        self._buffers.setdefault(connection, _Buffer(now, sent))

    def wants_look(self, held: int, sent: int, now: float) -> bool:
        """Whether to look at the buffers; held: bytes that wait."""
        much = held > self._limit // _LITTLE and sent - self._sent >= self._limit // _ALIKE // 4
        return now - self._looked >= (_AT_MOST_EVERY if much else _AT_LEAST_EVERY)

    def look(self, queued: Mapping[int, int], sent: int, now: float) -> None:
        """Note the bytes in the buffer of each open connection; others have ended."""
        self._looked, self._sent = now, sent
        for connection in self._buffers.keys() - queued.keys():
            del self._buffers[connection]
        for connection, size in queued.items():
            one = self._buffers[connection]
            one.most = max(size, one.most)
            if size != one.queued:
                one.queued, one.moved = size, now
            if size * _DRAINED <= one.most:
                one.drained, one.moved = sent, now

    def slowest(self, since: float, now: float) -> list[int]:
        """The connections to end, which are forgotten; since: when the limit was reached.

        Those that have stopped come first. One that reads has a tenth of a second to drain.
        """
        behind = {c: one for c, one in self._buffers.items() if one.drained < self._sent}
        still = {c: one for c, one in behind.items() if now - one.moved >= _PATIENCE}
        slow = still or (behind if now - since >= _PATIENCE else {})
        first = min((one.drained for one in slow.values()), default=0)
        alike = first + self._limit // _ALIKE
        ended = [connection for connection, one in slow.items() if one.drained <= alike]
        for connection in ended:
            del self._buffers[connection]
        return ended
