"""Workers of a daemon on a cluster: Ray actors that each hold the dictionary, or a shard of it.

Every part of a batch goes to the least busy worker of each shard: by a line if it is on this node,
else through Ray. A worker that dies, or does not answer for HANG_SECONDS, is given up: its parts go
to others, it is replaced, and late answers are ignored. A worker learns k-mers in call order; after
starting, it first learns those added meanwhile. So at each request it knows everything that the
stream added before.

While it loads its dictionary, which may take minutes, it sends heartbeats. ``ShardStarts`` decides
how long to wait. After a killed start, another follows immediately while the shard has no other
worker. A worker that raised an error would raise it again, so the next start is delayed.
"""

import contextlib
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer import __version__
from streamer.cluster.cluster_tasks import RETRIES
from streamer.cluster.connecting import Cluster, Parts, packed, unpacked
from streamer.cluster.match_worker import SLOTS, MatchWorker, NodeLine, WorkerSetup, readable
from streamer.errors import StreamerError


@dataclass
class Question:
    """A packed request. put: gives an object to Ray."""

    parts: Parts
    put: Callable[[Parts], Any]

    @cached_property
    def reference(self) -> Any:
        """Ray's reference to it, for workers that cannot be asked by a line."""
        return self.put(self.parts)


class AskedPart(NamedTuple):
    """A request that a worker has not answered; reference: of a call of Ray, else by its line."""

    number: int
    question: Question
    reference: Any


@dataclass(eq=False)
class Member:
    """A worker. learned: how many k-mers the team had learned when it was created.

    starting: the call in progress until it is ready. sign: its next heartbeat until then. alive: it
    has sent one. pid: set once its dictionary is loaded. line: to it, if it is on this node. ready:
    it also knows everything learned meanwhile. parts: outstanding ones, in order. since: when it
    last answered.
    """

    actor: Any
    shard: int
    learned: int
    starting: Any
    sign: Any
    alive: bool = False
    pid: int = 0
    line: NodeLine | None = None
    ready: bool = False
    parts: deque[AskedPart] = field(default_factory=deque)
    since: float = 0.0
    _slot: int = 0

    @property
    def asked(self) -> Any:
        """The call of Ray that it must answer within HANG_SECONDS, if any."""
        if self.parts:
            return self.parts[0].reference
        # the first heartbeat comes once Ray has started its process
        return self.sign if self.alive and not self.ready else None

    @property
    def awaited(self) -> NodeLine | None:
        """The line by which its next answer comes, if any."""
        return self.line if self.parts and self.parts[0].reference is None else None

    def ask(self, number: int, question: Question, learned: int) -> None:
        """Give it a part."""
        self._slot = (self._slot + 1) % SLOTS
        reference = None
        if self.line is None or not self.line.send(self._slot, question.parts, learned):
            reference = self._call(question, learned)
        self.parts.append(AskedPart(number, question, reference))

    def heard(self, learned: int) -> tuple[int, Any] | None:
        """Receive its next answer by its line; None if Ray has to carry it."""
        assert self.line is not None
        _, answer, _ = self.line.receive()
        number, question, _ = self.parts.popleft()
        if not answer:
            self.parts.appendleft(AskedPart(number, question, self._call(question, learned)))
            return None
        return number, unpacked(answer)

    def _call(self, question: Question, learned: int) -> Any:
        return self.actor.match.remote(question.reference, learned)

    def abandon(self) -> None:
        """Ignore the answers to its parts, which it may still write."""
        if self.parts:
            self.hang_up()
        self.parts.clear()

    def hang_up(self) -> None:
        """Do without the line."""
        if self.line is not None:
            self.line.close()
        self.line = None


def fault_of(error: BaseException) -> BaseException:
    """Return the exception that a worker raised, if it caused ``error``; else ``error``."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, Exception) else error


def first_line(error: BaseException) -> str:
    """Return what happened to a worker; without the traceback of an error that it raised."""
    cause = fault_of(error)
    if cause is not error:
        return f"{type(cause).__name__}: {first_line(cause)}"
    return " ".join(str(error).split())[:200] or type(error).__name__


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


HANG_SECONDS = 10.0
"""Time without an answer after which a worker hangs; a part takes some hundredths of a second."""

SIGN_SECONDS = 1.0  # between heartbeats of a starting worker
POLL_SECONDS = 0.25
TURN_SECONDS = 0.002  # of waiting for answers by lines and through Ray in turn
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
        self._shared = [None if cluster.lost else cluster.ray.put(packed(part)) for part in setups]
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
    def ready(self) -> int:
        """The number of workers that can be asked."""
        return sum(member.ready for member in self.members)

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

    def ask(self, requests: Sequence[Any], take: Callable[[int, Any], None]) -> None:
        """Ask a worker of each shard for each answer; raise NoWorkersError if there is none.

        take: called with the number of a request and an answer, in any order; the memory of the
        answer is reused afterwards.
        """
        questions = [Question(packed(request), self._cluster.ray.put) for request in requests]
        todo = [deque(range(len(questions))) for _ in range(self.shards)]
        missing = len(questions) * self.shards
        self._deaths.clear()
        try:
            while missing:
                self._give(questions, todo)
                for number, answer in self._step(todo):
                    take(number, answer)
                    missing -= 1
                if not self._covered() and (why := self._given_up()):
                    raise NoWorkersError(f"no worker of the cluster answers ({why})")
        finally:
            for member in self.members:
                # parts left behind by an error belong to no request any more
                member.abandon()

    def _give(self, questions: Sequence[Question], todo: Sequence[deque[int]]) -> None:
        """Assign parts to the least busy workers."""
        while True:
            # each has at most the current part and the next
            ready = [each for each in self.members if each.ready and len(each.parts) < SLOTS]
            free = [each for each in ready if todo[each.shard]]
            if not free:
                return
            member = min(free, key=lambda each: len(each.parts))
            number = todo[member.shard].popleft()
            if not member.parts:
                member.since = time.monotonic()
            member.ask(number, questions[number], self._learned)

    def _step(
        self, todo: Sequence[deque[int]], seconds: float = POLL_SECONDS
    ) -> list[tuple[int, Any]]:
        """Wait briefly for answers, and check on the workers."""
        self._recruit()
        lines = {member.awaited: member for member in self.members if member.awaited}
        calls = {each.asked: each for each in self.members if each.parts and not each.awaited}
        start = {each.starting: each for each in self.members if not each.ready}
        start |= {each.sign: each for each in self.members if not each.ready}
        answers: list[tuple[int, Any]] = []
        if lines:
            answers = self._hear(lines, todo, TURN_SECONDS if calls else seconds)
            seconds = 0
        if calls or start:
            answers += self._fetch(calls | start, bool(start), todo, seconds)
        elif not lines:
            time.sleep(0 if self._covered() else seconds)
        for member in self._hung():
            self._lose(member, todo, f"has not answered for {HANG_SECONDS:g} s")
        return answers

    def _hear(
        self, lines: dict[NodeLine, Member], todo: Sequence[deque[int]], seconds: float
    ) -> list[tuple[int, Any]]:
        """Wait for an answer by a line; return what is there."""
        answers = []
        for line in readable(lines, seconds):
            member = lines[line]
            try:
                answer = member.heard(self._learned)
            except EOFError:
                self._lose(member, todo, "died (its process has ended)")
                continue
            member.since = time.monotonic()
            if answer is not None:
                answers.append(answer)
        return answers

    def _fetch(
        self, calls: dict[Any, Member], starts: bool, todo: Sequence[deque[int]], seconds: float
    ) -> list[tuple[int, Any]]:
        """Wait for the outcome of a call of Ray; return answers. starts: a worker is starting."""
        errors = self._cluster.ray.exceptions
        ended, rest = self._cluster.ray.wait(
            list(calls), num_returns=1, timeout=seconds, fetch_local=False
        )
        if starts and rest:
            # a starting worker must not wait for the answers of others
            ended += self._cluster.ray.wait(
                rest, num_returns=len(rest), timeout=0, fetch_local=False
            )[0]
        answers = []
        for reference in ended:
            member = calls[reference]
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
            member.since = time.monotonic()
            answers.append((member.parts.popleft().number, unpacked(value)))
        return answers

    def _hung(self) -> list[Member]:
        """Return the workers overdue with an answer, except those whose answer is still unread."""
        before = time.monotonic() - HANG_SECONDS
        late = [member for member in self.members if member.since < before]
        lines = {member.awaited: member for member in late if member.awaited}
        calls = {member.asked: member for member in late if member.asked is not None}
        for line in readable(lines, 0):
            del lines[line]
        missing = []
        if calls:
            _, missing = self._cluster.ray.wait(
                list(calls), num_returns=len(calls), timeout=0, fetch_local=False
            )
        return [*lines.values(), *(calls[reference] for reference in missing)]

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
            member.pid, member.line = value.pid, NodeLine.at(value)
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
        for part in reversed(member.parts):
            todo[member.shard].appendleft(part.number)
        if not member.ready:
            self._starts[member.shard].failed(time.monotonic(), why, raised=raised)
        name = f"process {member.pid}" if member.pid else "one that was starting"
        rest = "; its batches go to others" if member.parts else ""
        self._say(f"a worker of the cluster {why}: {name}{rest}")
        self._end(member)
        if not member.parts:
            return
        # it was working on its first part
        at_fault = member.shard, member.parts[0].number
        self._deaths[at_fault] += 1
        if self._deaths[at_fault] > RETRIES:
            raise NoWorkersError(
                f"{RETRIES + 1} workers of the cluster failed in the same part of a batch; the "
                f"last one {why}"
            )

    def _end(self, member: Member) -> None:
        member.hang_up()
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
            for member in [each for each in there if not each.ready][: max(0, extra)]:
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
