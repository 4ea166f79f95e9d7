"""What each key may still send: a rate, as a token bucket, and a limit on unfinished bytes."""

from __future__ import annotations

from streamer.daemon.core.rights import KeyLimits, Rights

_BURST_SECONDS = 1.0
_PLENTY = 1 << 62


class Allowance:
    """The allowance of a key. most: the largest batch, which always fits if no other is unfinished.

    Times are monotonic seconds.
    """

    def __init__(self, limits: KeyLimits, most: int, now: float) -> None:
        self.limits = limits
        self.waiting = 0
        self._most = most
        self._level = float(self._capacity)
        self._filled = now

    @property
    def paced(self) -> bool:
        """Whether there is a limit on the rate."""
        return bool(self.limits.bytes_per_second)

    @property
    def _capacity(self) -> int:
        return max(int(self.limits.bytes_per_second * _BURST_SECONDS), self._most)

    def room(self, now: float) -> int:
        """How many bytes of batches the key may send now."""
        room = _PLENTY
        if self.paced:
            self._fill(now)
            room = int(self._level)
        if self.limits.waiting_bytes:
            room = min(room, max(self.limits.waiting_bytes, self._most) - self.waiting)
        return max(0, room)

    def take(self, size: int, now: float) -> None:
        """Count a batch that has come."""
        self.waiting += size
        if self.paced:
            self._fill(now)
            self._level -= size

    def _fill(self, now: float) -> None:
        gained = max(0.0, now - self._filled) * self.limits.bytes_per_second
        self._level = min(self._level + gained, float(self._capacity))
        self._filled = now


class Allowances:
    """The allowances of all keys with a limit. most: the largest batch."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._of: dict[str, Allowance] = {}

    def of(self, rights: Rights, now: float) -> Allowance | None:
        """The allowance of a key, None if it has no limit."""
        limits = rights.limits
        held = self._of.get(rights.key)
        if not (limits.bytes_per_second or limits.waiting_bytes):
            return None
        if held is None:
            held = self._of[rights.key] = Allowance(limits, self._most, now)
        # unfinished bytes still count after a change of the limits
        held.limits = limits
        return held
