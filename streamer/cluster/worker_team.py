"""Workers of a daemon on a cluster: Ray actors that each hold the dictionary, or a shard of it.

Every part of a batch goes to the least busy worker of each shard. A worker that dies, or does not
answer for HANG_SECONDS, is given up: its parts go to others, it is replaced, and late answers are
ignored. A worker learns k-mers in call order; after starting, it first learns those added
meanwhile. So at each request it knows everything that the stream added before. While it loads its
dictionary, which may take minutes, it sends heartbeats; ``shard_starts`` decides how long to wait.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer import __version__
from streamer.cluster.cluster_tasks import RETRIES
from streamer.cluster.connecting import Cluster
from streamer.cluster.match_worker import MatchWorker, WorkerSetup
from streamer.cluster.shard_starts import ShardStarts
from streamer.cluster.shared_objects import packed, unpacked
from streamer.cluster.team_member import Member, fault_of, first_line
from streamer.errors import StreamerError

HANG_SECONDS = 10.0
"""Time without an answer after which a worker hangs; a part takes some hundredths of a second."""

SIGN_SECONDS = 1.0  # between heartbeats of a starting worker
POLL_SECONDS = 0.25
EACH = 2
"""Parts assigned to a worker at a time: the current one and the next."""

SIGNS = "signs"
"""The threads of a worker that send heartbeats while others load."""


class NoWorkersError(StreamerError):
    """The workers of a shard cannot answer."""


class WorkerTeam:
    """Keeps ``workers`` workers alive for each of ``setups`` (one per shard).

    With 0 workers, there is one per CPU of the cluster in all.

    grown: returns the k-mers learned so far. say: called with a line about workers lost and found.
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
        self._shared = [None if cluster.lost else cluster.ray.put(packed(one)) for one in setups]
        self._workers = workers
        self._grown = grown
        self._say = say
        self._class = cluster.ray.remote(concurrency_groups={SIGNS: 1})(MatchWorker).options(
            num_cpus=1, max_restarts=0, max_task_retries=0, scheduling_strategy="SPREAD"
        )
        self.members: list[Member] = []
        self._learned = 0
        now = time.monotonic()
        self._starts = [ShardStarts(now) for _ in setups]
        self._deaths: Counter[tuple[int, int]] = Counter()
        """How many workers of a shard were given up with a part of the current requests."""
        self._recruit()

    @property
    def shards(self) -> int:
        """The number of shards."""
        return len(self._shared)

    @property
    def size(self) -> int:
        """The intended number of workers per shard."""
        return self._workers or max(1, self._cluster.cpus // self.shards)

    @property
    def here(self) -> bool:
        """Return whether each shard has a worker; waits for starting ones."""
        while not self._covered():
            given_up = self._given_up() != ""
            self._step([], 0 if given_up else POLL_SECONDS)
            if given_up and not self._covered():
                return False
        return True

    def reason(self) -> str:
        """Return why workers are missing."""
        return self._given_up()

    def _covered(self) -> bool:
        """Whether each shard has a worker."""
        if self._cluster.lost:
            # these workers would miss what is learned from now on
            self.close()
        now = time.monotonic()
        working = {member.shard for member in self.members if member.ready}
        for shard in working:
            self._starts[shard].working(now)
        return len(working) == self.shards

    def _given_up(self) -> str:
        """Return why no worker can be started for a shard; empty if one may still start."""
        if lost := self._cluster.lost:
            return lost
        now = time.monotonic()
        for starts in self._starts:
            if starts.given_up(now):
                return starts.reason()
        late = [starts.is_late(now) for starts in self._starts]
        if any(late):
            self._say("workers of the cluster take long to start; waiting for them")
        return ""

    def learn(self, codes: NDArray[np.uint64]) -> None:
        """Have all workers learn k-mers, before any later request.

        ``grown`` includes them already. A worker that is still starting gets them afterwards,
        because its queue of calls would grow without bound.
        """
        self._learned += codes.size
        started = [member for member in self.members if member.pid]
        if not started:
            return
        shared = self._cluster.ray.put(codes)
        for member in started:
            member.actor.learn.remote(shared)

    def ask(self, requests: Sequence[Any]) -> list[list[Any]]:
        """The answers of all shards to each request, in order; raise NoWorkersError if none."""
        given = [self._cluster.ray.put(packed(request)) for request in requests]
        todo = [deque(range(len(given))) for _ in range(self.shards)]
        answers: list[dict[int, Any]] = [{} for _ in range(self.shards)]
        self._deaths.clear()
        try:
            while sum(map(len, answers)) < len(given) * self.shards:
                self._give(given, todo)
                for member, number, answer in self._step(todo):
                    answers[member.shard][number] = answer
                if not self._covered() and (why := self._given_up()):
                    message = f"no worker of the cluster answers ({why})"
                    raise NoWorkersError(message)
        finally:
            for member in self.members:
                # parts left behind by an error belong to no request any more
                member.parts.clear()
        return [[of_shard[number] for of_shard in answers] for number in range(len(given))]

    def _give(self, given: Sequence[Any], todo: Sequence[deque[int]]) -> None:
        """Assign parts to the least busy workers."""
        for member in sorted(self.members, key=lambda one: len(one.parts)):
            waiting = todo[member.shard]
            while member.ready and waiting and len(member.parts) < EACH:
                number = waiting.popleft()
                if not member.parts:
                    member.since = time.monotonic()
                answer = member.actor.match.remote(given[number], self._learned)
                member.parts.append((answer, number))

    def _step(
        self, todo: Sequence[deque[int]], seconds: float = POLL_SECONDS
    ) -> list[tuple[Member, int, Any]]:
        """Wait briefly for answers, and check on the workers."""
        self._recruit()
        start = [member for member in self.members if not member.ready]
        watched = {member.parts[0][0]: member for member in self.members if member.parts}
        watched |= {member.starting: member for member in start}
        watched |= {member.sign: member for member in start}
        if not watched:
            time.sleep(0 if self._covered() else seconds)
            return []
        errors = self._cluster.ray.exceptions
        found, rest = self._cluster.ray.wait(
            list(watched), num_returns=1, timeout=seconds, fetch_local=False
        )
        if start and rest:
            # a starting worker must not wait for the answers of others
            found += self._cluster.ray.wait(
                rest, num_returns=len(rest), timeout=0, fetch_local=False
            )[0]
        answers = []
        for reference in found:
            member = watched[reference]
            if member not in self.members:
                continue
            try:
                value = self._cluster.ray.get(reference)
            except (errors.RayError, ConnectionError) as error:
                fault = fault_of(error)
                raised = fault is not error and not isinstance(fault, errors.RayError)
                why = f"{'failed' if raised else 'died'} ({first_line(error)})"
                self._lose(member, todo, why, raised=raised)
                continue
            if not member.parts:
                self._begin(member, reference, value)
                continue
            _, number = member.parts.popleft()
            member.since = time.monotonic()
            answers.append((member, number, unpacked(value)))
        for member in self._hung():
            self._lose(member, todo, f"has not answered for {HANG_SECONDS:g} s")
        return answers

    def _hung(self) -> list[Member]:
        """Return the workers overdue with an answer, except those whose answer is still unread."""
        before = time.monotonic() - HANG_SECONDS
        late = {
            one.asked: one for one in self.members if one.asked is not None and one.since < before
        }
        if not late:
            return []
        _, missing = self._cluster.ray.wait(
            list(late), num_returns=len(late), timeout=0, fetch_local=False
        )
        return [late[reference] for reference in missing]

    def _begin(self, member: Member, reference: Any, value: Any) -> None:
        """Handle a startup step: a worker is alive, has started, or has learned what it missed."""
        now = time.monotonic()
        if reference == member.sign:
            self._starts[member.shard].alive(now)
            member.alive, member.since = True, now
            if not member.ready:
                member.sign = self._sign(member.actor, SIGN_SECONDS)
            return
        if not member.pid:
            member.pid = value
            if member.learned != self._learned:
                # this may take long, but no part waits for it
                member.starting = member.actor.learn_all.remote([self._put_grown()], self._learned)
                return
        member.ready = True
        self._starts[member.shard].started()

    def _sign(self, actor: Any, seconds: float) -> Any:
        return actor.alive.options(concurrency_group=SIGNS).remote(seconds)

    def _lose(
        self, member: Member, todo: Sequence[deque[int]], why: str, *, raised: bool = False
    ) -> None:
        """Give a worker up and reassign its parts. raised: by an error of its own."""
        self.members.remove(member)
        for _, number in reversed(member.parts):
            todo[member.shard].appendleft(number)
        if not member.ready:
            self._starts[member.shard].failed(time.monotonic(), why, raised=raised)
        name = f"process {member.pid}" if member.pid else "one that was starting"
        rest = "; its batches go to others" if member.parts else ""
        self._say(f"a worker of the cluster {why}: {name}{rest}")
        self._end(member)
        if not member.parts:
            return
        # it was working on its first part
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
        """Start missing workers; stop those that fail to start if there are enough."""
        if self._cluster.lost:
            return
        grown = None
        for shard, starts in enumerate(self._starts):
            there = [member for member in self.members if member.shard == shard]
            extra = len(there) - self.size
            for member in [one for one in there if not one.ready][: max(0, extra)]:
                self.members.remove(member)
                self._end(member)
            works = any(member.ready for member in there)
            if extra >= 0 or not starts.may_start(time.monotonic(), works=works):
                continue
            if grown is None:
                grown = self._put_grown()
            for _ in range(-extra):
                actor = self._class.remote()
                loading = actor.load.remote(
                    __version__, [self._shared[shard]], [grown], self._learned
                )
                sign = self._sign(actor, 0)
                self.members.append(Member(actor, shard, self._learned, loading, sign))

    def _put_grown(self) -> Any:
        """Give Ray the k-mers learned so far."""
        begun = time.monotonic()
        grown = self._cluster.ray.put(self._grown())
        took = time.monotonic() - begun
        for starts in self._starts:
            starts.delayed(took)
        return grown

    def close(self) -> None:
        """Stop all workers."""
        for member in self.members:
            self._end(member)
        self.members.clear()
