"""Which subscriber holds up more of the daemon's memory than it may.

What waits for all subscribers together is known in bytes, what waits for each is not. But a
connection that takes what it is sent drains its buffer in the kernel again and again, and one that
does not never does: it is the one to end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

# so long a connection may need for a burst, in seconds; and memory is freed after an end
_PATIENCE = 0.25
_BETWEEN_SAMPLES, _AT_LEAST_EVERY = 0.005, 1.0
# of what a buffer has held at most, what counts as drained
_DRAINED = 4


class Backlog:
    """Connections of subscribers, by any number, and when each was last seen to keep up.

    limit: bytes that may wait, for all of them together.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept_up: dict[int, float] = {}
        self._most: dict[int, int] = {}
        self._sampled = self._ended = float("-inf")

    @property
    def connections(self) -> Iterable[int]:
        """Those that may be asked for."""
        return self._kept_up.keys()

    def add(self, connection: int, now: float) -> None:
        """A connection subscribes; now: monotonic seconds."""
        self._kept_up.setdefault(connection, now)

    def wants_sample(self, held: int, now: float) -> bool:
        """Whether to look at the connections; held: bytes that wait."""
        much = held > self._limit // 4
        return now - self._sampled >= (_BETWEEN_SAMPLES if much else _AT_LEAST_EVERY)

    def sample(self, queued: Mapping[int, int], held: int, now: float) -> int | None:
        """The connection to end, if any, after a look at the bytes in the kernel's buffer of each.

        queued: of every connection that is still there.
        """
        self._sampled = now
        for connection in self._kept_up.keys() - queued.keys():
            self._forget(connection)
        for connection, size in queued.items():
            most = self._most[connection] = max(size, self._most.get(connection, 0))
            if size * _DRAINED <= most:
                self._kept_up[connection] = now
        if held <= self._limit or not self._kept_up or now - self._ended < _PATIENCE:
            return None
        slowest = min(self._kept_up, key=self._kept_up.__getitem__)
        if now - self._kept_up[slowest] < _PATIENCE:
            return None
        self._ended = now
        self._forget(slowest)
        return slowest

    def _forget(self, connection: int) -> None:
        self._kept_up.pop(connection, None)
        self._most.pop(connection, None)
