"""How the workers of a shard start, without I/O: when the next one may, and when to give up.

A start that is alive is waited for. One that was killed is tried again at once while the shard has
no other worker; a worker that raises an error would raise it again, so that this waits.
"""

from __future__ import annotations

from streamer.cluster.cluster_tasks import RETRIES

START_SECONDS = 60.0
"""A shard without a worker is given up after as long without a sign of life of one that starts."""

LONGEST_PAUSE = 30.0  # before the next try, where starts fail


class ShardStarts:
    """now: monotonic seconds, in all calls."""

    def __init__(self, now: float) -> None:
        self._working = self._sign = self._failed = now
        self._failures = 0
        self._raised = False
        self._why = ""
        self._given_up = self._told = False

    def started(self) -> None:
        """A worker has started."""
        self._failures, self._raised = 0, False

    def working(self, now: float) -> None:
        """There is a worker."""
        self._working = self._sign = now
        self._given_up = self._told = False

    def alive(self, now: float) -> None:
        """A worker that starts has given a sign of life."""
        self._sign = now

    def failed(self, now: float, why: str, *, raised: bool) -> None:
        """A worker that started is lost. raised: by an error of its own."""
        self._failures += 1
        self._failed, self._why, self._raised = now, why, raised
        # where one is killed others can start; where one raises what it did was no life
        self._sign = self._working if raised else now

    def may_start(self, now: float, *, works: bool) -> bool:
        """Whether to try again. works: the shard has a worker."""
        over = self._failures - (0 if works or self._raised else RETRIES)
        return over <= 0 or now >= self._failed + min(2.0**over, LONGEST_PAUSE)

    def given_up(self, now: float) -> bool:
        """Whether no worker can be started; until there is one."""
        if now - self._working > START_SECONDS:
            silent = now - self._sign > START_SECONDS
            self._given_up |= silent or self._failures > RETRIES
        return self._given_up

    def is_late(self, now: float) -> bool:
        """Once: a start is waited for longer than usual."""
        if self._told or self._given_up or now - self._working <= START_SECONDS:
            return False
        self._told = True
        return True

    def reason(self) -> str:
        """Why it was given up, in a few words."""
        if not self._failures:
            return f"none has started for {START_SECONDS:g} s; does the cluster have enough CPUs?"
        many = f"{self._failures} have" if self._failures > 1 else "one has"
        return f"{many} failed while starting; the last one {self._why}"
