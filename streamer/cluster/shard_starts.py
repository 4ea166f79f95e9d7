"""When to start the workers of a shard, and when to give up; without I/O.

A start that shows signs of life is waited for. After a killed start, another follows immediately
while the shard has no other worker. A worker that raised an error would raise it again, so the next
start is delayed.
"""

from __future__ import annotations

from streamer.cluster.cluster_tasks import RETRIES

START_SECONDS = 60.0
"""A shard without workers is given up if no starting worker shows a sign of life for this long."""

LONGEST_PAUSE = 30.0  # before the next attempt, after failed starts


class ShardStarts:
    """The state of one shard's starts. now: monotonic seconds, in all calls."""

    def __init__(self, now: float) -> None:
        self._working = self._sign = self._failed = now
        self._failures = 0
        self._raised = False
        self._why = ""
        self._given_up = self._told = False

    def started(self) -> None:
        """Note that a worker has been started."""
        self._failures, self._raised = 0, False

    def working(self, now: float) -> None:
        """Note that there is a worker."""
        self._working = self._sign = now
        self._given_up = self._told = False

    def alive(self, now: float) -> None:
        """Note a sign of life from a starting worker."""
        self._sign = now

    def failed(self, now: float, why: str, *, raised: bool) -> None:
        """Note that a starting worker was lost. raised: by an error of its own."""
        self._failures += 1
        self._failed, self._why, self._raised = now, why, raised
        # after a kill others may still start; if it raised, its signs of life do not count
        self._sign = self._working if raised else now

    def delayed(self, seconds: float) -> None:
        """Note that the caller was busy for so long: it has not heard of workers meanwhile."""
        self._working += seconds
        self._sign += seconds
        self._failed += seconds

    def may_start(self, now: float, *, works: bool) -> bool:
        """Return whether to try again. works: the shard has a worker."""
        over = self._failures - (0 if works or self._raised else RETRIES)
        return over <= 0 or now >= self._failed + min(2.0**over, LONGEST_PAUSE)

    def given_up(self, now: float) -> bool:
        """Return whether starting has been given up; reset once there is a worker."""
        if now - self._working > START_SECONDS:
            silent = now - self._sign > START_SECONDS
            self._given_up |= silent or self._failures > RETRIES
        return self._given_up

    def is_late(self, now: float) -> bool:
        """Return, once, whether a start takes longer than usual."""
        if self._told or self._given_up or now - self._working <= START_SECONDS:
            return False
        self._told = True
        return True

    def reason(self) -> str:
        """Return briefly why it was given up."""
        if not self._failures:
            return f"none has started for {START_SECONDS:g} s; does the cluster have enough CPUs?"
        many = f"{self._failures} have" if self._failures > 1 else "one has"
        return f"{many} failed while starting; the last one {self._why}"
