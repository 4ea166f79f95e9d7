"""Workers of a daemon on a cluster: Ray actors that each know the dictionary, or a shard of it.

Every part of a batch goes to the least busy worker of each shard. A worker that dies or answers
nothing for HANG_SECONDS is given up: its parts go to others, another one takes its place, and an
answer that comes after all is not looked at. A worker learns k-mers in the order of the calls, and
once it has started those that came meanwhile, before it is asked anything. So whatever it is asked
it knows all that the stream brought before.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer import __version__
from streamer.cluster.cluster_tasks import RETRIES
from streamer.cluster.connecting import Cluster
from streamer.cluster.match_worker import MatchWorker, WorkerSetup
from streamer.cluster.shared_objects import packed, unpacked
from streamer.errors import StreamerError

HANG_SECONDS = 10.0
"""Without an answer, of a worker that has been asked; a part takes some hundredths."""

START_SECONDS = 60.0  # until there is a worker, at first and later for a shard
POLL_SECONDS = 0.25
EACH = 2
"""Parts that a worker has at a time: one that it works on and the next one."""

LONGEST_PAUSE = 30.0  # before the next try, where workers die while they start


class NoWorkersError(StreamerError):
    """The workers of a shard cannot answer."""


@dataclass(eq=False)
class Member:
    """A worker. learned: how many k-mers the team had learned when it was made.

    pid: once it has loaded its dictionary. ready: once it also knows all that was learned
    meanwhile. parts: under way, with their references, in order.
    """

    actor: Any
    shard: int
    starting: Any
    learned: int
    pid: int = 0
    ready: bool = False
    parts: deque[tuple[Any, int]] = field(default_factory=deque)
    since: float = 0.0


class WorkerTeam:
    """Keeps ``workers`` of each of ``setups`` (a shard each) alive; 0: a worker a CPU of the
    cluster in all.

    grown: the k-mers that were learned so far. say: takes a line about workers lost and found.
    """

    def __init__(
        self,
        cluster: Cluster,
        setups: Sequence[WorkerSetup],
        workers: int,
        grown: Callable[[], NDArray[np.uint64]],
        say: Callable[[str], None],
    ) -> None:
        self._cluster = cluster
        self._shared = [cluster.ray.put(packed(setup)) for setup in setups]
        self._workers = workers
        self._grown = grown
        self._say = say
        self._class = cluster.ray.remote(MatchWorker).options(
            num_cpus=1, max_restarts=0, max_task_retries=0, scheduling_strategy="SPREAD"
        )
        self.members: list[Member] = []
        self._learned = 0
        self._failures = 0
        self._deaths: Counter[tuple[int, int]] = Counter()
        """Workers of a shard that were given up with a part that is asked now."""
        self._not_before = 0.0
        self._lonely_since = time.monotonic()
        self._recruit()

    @property
    def shards(self) -> int:
        """How many there are."""
        return len(self._shared)

    @property
    def size(self) -> int:
        """Workers of a shard that should be there."""
        return self._workers or max(1, self._cluster.cpus // self.shards)

    @property
    def here(self) -> bool:
        """Whether each shard has a worker, which is waited for a while at first."""
        while not self._covered():
            late = time.monotonic() - self._lonely_since > START_SECONDS
            self._step([], 0 if late else POLL_SECONDS)
            if late and not self._covered():
                return False
        self._lonely_since = time.monotonic()
        return True

    def _covered(self) -> bool:
        return {member.shard for member in self.members if member.ready} == set(range(self.shards))

    def learn(self, codes: NDArray[np.uint64]) -> None:
        """Have all workers learn k-mers, before whatever they are asked next.

        ``grown`` has them already: a worker that has not started is sent them once it has, since
        its calls would wait without a bound.
        """
        self._learned += codes.size
        started = [member for member in self.members if member.pid]
        if not started:
            return
        shared = self._cluster.ray.put(codes)
        for member in started:
            member.actor.learn.remote(shared)

    def ask(self, requests: Sequence[Any]) -> list[list[Any]]:
        """The answers of all shards to each request, in order; else NoWorkersError."""
        given = [self._cluster.ray.put(packed(request)) for request in requests]
        todo = [deque(range(len(given))) for _ in range(self.shards)]
        answers: list[dict[int, Any]] = [{} for _ in range(self.shards)]
        self._deaths.clear()
        try:
            while sum(map(len, answers)) < len(given) * self.shards:
                self._give(given, todo)
                for member, number, answer in self._step(todo):
                    answers[member.shard][number] = answer
                if self._covered():
                    self._lonely_since = time.monotonic()
                elif time.monotonic() - self._lonely_since > START_SECONDS:
                    message = f"no worker of the cluster has answered for {START_SECONDS:g} s"
                    raise NoWorkersError(message)
        finally:
            for member in self.members:
                # those that an error leaves behind are of no request any more
                member.parts.clear()
        return [[of_shard[number] for of_shard in answers] for number in range(len(given))]

    def _give(self, given: Sequence[Any], todo: Sequence[deque[int]]) -> None:
        """Give parts to the least busy workers."""
        for member in sorted(self.members, key=lambda one: len(one.parts)):
            waiting = todo[member.shard]
            while member.ready and waiting and len(member.parts) < EACH:
                number = waiting.popleft()
                if not member.parts:
                    member.since = time.monotonic()
                member.parts.append((member.actor.match.remote(given[number]), number))

    def _step(
        self, todo: Sequence[deque[int]], seconds: float = POLL_SECONDS
    ) -> list[tuple[Member, int, Any]]:
        """Wait for answers a little, and look after the workers."""
        self._recruit()
        watched = {
            (member.parts[0][0] if member.parts else member.starting): member
            for member in self.members
            if member.parts or not member.ready
        }
        if not watched:
            time.sleep(0 if self._covered() else seconds)
            return []
        found, _ = self._cluster.ray.wait(
            list(watched), num_returns=1, timeout=seconds, fetch_local=False
        )
        answers = []
        for reference in found:
            member = watched[reference]
            try:
                value = self._cluster.ray.get(reference)
            except (self._cluster.ray.exceptions.RayError, ConnectionError) as error:
                self._lose(member, todo, f"died ({_first_line(error)})")
                continue
            if not member.ready:
                self._begin(member, value)
                continue
            _, number = member.parts.popleft()
            member.since = time.monotonic()
            answers.append((member, number, unpacked(value)))
        for member in self._hung():
            self._lose(member, todo, f"has not answered for {HANG_SECONDS:g} s")
        return answers

    def _hung(self) -> list[Member]:
        """Workers without an answer for too long; not those whose answer was not looked at yet."""
        before = time.monotonic() - HANG_SECONDS
        late = {one.parts[0][0]: one for one in self.members if one.parts and one.since < before}
        if not late:
            return []
        _, missing = self._cluster.ray.wait(
            list(late), num_returns=len(late), timeout=0, fetch_local=False
        )
        return [late[reference] for reference in missing]

    def _begin(self, member: Member, started: Any) -> None:
        """A worker has started, or knows what was learned until then."""
        if not member.pid:
            member.pid = started
            if member.learned != self._learned:
                # no part waits for this, which may take long
                grown = self._cluster.ray.put(self._grown())
                member.starting = member.actor.learn.remote(grown)
                return
        member.ready, self._failures = True, 0

    def _lose(self, member: Member, todo: Sequence[deque[int]], why: str) -> None:
        """Give a worker up; what it had goes to others."""
        self.members.remove(member)
        for _, number in reversed(member.parts):
            todo[member.shard].appendleft(number)
        if not member.ready:
            self._failures += 1
            self._not_before = time.monotonic() + min(2.0**self._failures, LONGEST_PAUSE)
        name = f"process {member.pid}" if member.pid else "one that was starting"
        self._say(f"a worker of the cluster {why}: {name}; its batches go to others")
        self._end(member)
        if not member.parts:
            return
        # it was at the first of its parts
        at_fault = member.shard, member.parts[0][1]
        self._deaths[at_fault] += 1
        if self._deaths[at_fault] > RETRIES:
            message = (
                f"{RETRIES + 1} workers of the cluster failed in the same part of a batch; the "
                f"last one {why}"
            )
            raise NoWorkersError(message)

    def _end(self, member: Member) -> None:
        with contextlib.suppress(Exception):
            self._cluster.ray.kill(member.actor, no_restart=True)

    def _recruit(self) -> None:
        """Start workers that are missing; end those that cannot start if there are enough."""
        for shard in range(self.shards):
            there = [member for member in self.members if member.shard == shard]
            extra = len(there) - self.size
            for member in [one for one in there if not one.ready][: max(0, extra)]:
                self.members.remove(member)
                self._end(member)
            if extra >= 0 or time.monotonic() < self._not_before:
                continue
            grown = self._cluster.ray.put(self._grown())
            for _ in range(-extra):
                actor = self._class.remote(__version__, self._shared[shard], grown)
                self.members.append(Member(actor, shard, actor.pid.remote(), self._learned))

    def close(self) -> None:
        """End all workers."""
        for member in self.members:
            self._end(member)
        self.members.clear()


def _first_line(error: BaseException) -> str:
    """What happened to a worker; of an error that it raised, without the traceback."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, Exception):
        return f"{type(cause).__name__}: {_first_line(cause)}"
    return " ".join(str(error).split())[:200] or type(error).__name__
