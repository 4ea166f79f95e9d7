"""One run of a seed: a storm of faults, then calm, in which everything must complete."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from structlog.testing import capture_logs

from streamer.daemon.restore import fingerprint
from tests.simulation.clock import EventClock
from tests.simulation.daemon_host import DaemonHost, Site
from tests.simulation.model_journal import MachineDisk
from tests.simulation.network import Noise, Path
from tests.simulation.producer_host import Job, ProducerHost, job
from tests.simulation.promises import Promises, violated
from tests.simulation.single_pass import dictionary_of
from tests.simulation.storm import Storm, StormPlan
from tests.simulation.subscriber_host import Healer, Heard, Watcher

GROWING = ("match", "mismatch", "delta", "read")
FROZEN = ("match", "mismatch", "read", "retract", "upgrade", "settled")

# seconds for everything to complete without faults, and for the daemon's end to be known
_CALM_SECONDS, _END_SECONDS = 120.0, 30.0
_LOOK_SECONDS = 0.1
# seconds for an operator to restart something: usually, and sometimes
_DOWN, _LONG_DOWN = 0.4, 8.0


@dataclass(frozen=True)
class RunReport:
    """The figures of a run: simulated seconds, steps, faults by kind, starts, records, messages."""

    seconds: float = 0.0
    steps: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    starts: int = 0
    records: int = 0
    messages: int = 0


class World:
    """All participants of a run."""

    def __init__(
        self,
        seed: int,
        daemon: type[DaemonHost] = DaemonHost,
        trace: Callable[[str], None] | None = None,
    ) -> None:
        self.plan = plan = StormPlan.of(seed)
        self.clock = clock = EventClock(seed, trace)
        self.promises = Promises(grows=plan.grows, limit=plan.max_kmers)
        self.topics = GROWING if plan.grows else FROZEN
        self.calm = self.over = False
        self.starts = 0
        self.daemon: DaemonHost | None = None
        self.totals = Counter[str]()
        self.producers: dict[str, ProducerHost] = {}
        self.healers: dict[str, Healer] = {}
        self.watchers: dict[str, Watcher] = {}
        self.noise = Noise(
            plan.latency, plan.drop, plan.repeat, plan.reorder, plan.flip, plan.flip > 0
        )
        self.site = Site(
            clock,
            MachineDisk(clock.random),
            self.promises,
            plan.durability,
            plan.memory_bytes,
            plan.max_batch_bytes,
            plan.beat_seconds,
            plan.feed_messages,
            plan.feed_bytes,
            plan.sync_limits,
            plan.snapshot_after,
            plan.keep_records,
            plan.revised_records,
            plan.grows,
            plan.max_kmers,
            frozenset(),
        )
        self.paths: dict[str, Path] = {}
        self.heard: dict[str, Heard] = {}
        self.jobs = [self._job(number, size) for number, size in enumerate(plan.producers)]
        self.subscribers = [f"w{n}" for n in range(plan.watchers)]
        self.subscribers += [f"h{n}" for n in range(plan.healers)]
        self.subscribers += [f"f{n}" for n in range(plan.fetchers)]
        self._make_daemon = daemon
        self._numbers: Counter[str] = Counter()
        self._accept_loss = self._drained = False
        self.choose_sources()

    def _job(self, number: int, size: int) -> Job:
        chance = random.Random(f"{self.clock.random.random()} {number}")
        return job(f"p{number}", chance, size, self.plan.storm / size * chance.choice((0, 1, 1)))

    # ---- starts and restarts ----------------------------------------------------------------

    def begin(self) -> None:
        """Start everything, some of it late."""
        chance, storm = self.clock.random, self.plan.storm
        self.start_daemon()
        for each in self.jobs:
            self.clock.after(chance.random(), partial(self.start_producer, each))
        for name in self.subscribers:
            wait = chance.choice((0.0, chance.random() * storm))
            self.clock.after(wait, partial(self.start_subscriber, name))

    def start_daemon(self) -> None:
        """Start the daemon, like an operator."""
        if self.daemon is not None and self.daemon.alive:
            return
        chance = self.clock.random
        self.starts += 1
        if self.plan.new_sources and chance.random() < 0.2:
            self.choose_sources()
        self.daemon = self._make_daemon(
            self.site,
            self.starts,
            accept_loss=self._accept_loss,
            slowness=1.0 if self.calm else chance.choice((1, 1, 1, 10)),
            exited=self._exited,
        )
        self._accept_loss = self._drained = False

    def choose_sources(self) -> None:
        """Change the files of the dictionary."""
        chance = self.clock.random
        codes = frozenset(
            chance.sample(range(256), chance.randrange(20 if self.plan.grows else 200))
        )
        self.site.sources = codes
        self.promises.sources[fingerprint(dictionary_of(codes))] = codes

    def _exited(self, why: str) -> None:
        """The daemon has ended by itself; its operator reads the reason."""
        assert self.daemon is not None
        self.totals = self.daemon.totals
        self._drained = why == "drained"
        self._accept_loss = "checksum" in why
        if not (self.over and self._drained):
            self.restart_daemon()

    def restart_daemon(self) -> None:
        """Start the daemon again after a while."""
        chance = self.clock.random
        wait = chance.expovariate(1 / _DOWN)
        if not self.calm and chance.random() < 0.1:
            wait = chance.random() * _LONG_DOWN
        self.clock.after(wait, self.start_daemon)

    def path(self, name: str) -> Path:
        """The network between a client's machine and the daemon's."""
        return self.paths.setdefault(name, Path(self.clock, self.noise))

    def start_producer(self, job: Job) -> None:
        """Start a producer, unless it has sent all of its file."""
        before = self.producers.get(job.name)
        if job.done or (before is not None and before.alive):
            return
        self._numbers[job.name] += 1
        self.producers[job.name] = ProducerHost(
            self.clock,
            self.path(job.name),
            self.site.ingest,
            job,
            self._numbers[job.name],
            self.promises,
            lambda: self.restart(lambda: self.start_producer(job)),
        )

    def start_subscriber(self, name: str) -> None:
        """Start a subscriber; a healing one resumes where it ended."""
        clock, site, promises = self.clock, self.site, self.promises
        running = self.watchers.get(name) or self.healers.get(name)
        if running is not None and running.alive:
            return
        self._numbers[name] += 1
        called, path = f"{name} {self._numbers[name]}", self.path(name)
        topics = self.topics if name[0] == "f" else self._topics(name)
        if name[0] == "w":
            self.watchers[name] = Watcher(clock, called, path, site.feed, topics, promises)
            return
        if name not in self.heard:
            self.heard[name] = Heard(name, topics)
            promises.watches(self.heard[name])
        self.healers[name] = Healer(
            clock,
            called,
            path,
            site.feed,
            site.sync,
            self.heard[name],
            promises,
            lambda: self.restart(lambda: self.start_subscriber(name)),
            buffer_bytes=self.plan.healing_bytes,
            fetches=name[0] == "f",
            from_first=name == "h0",
        )

    def _topics(self, name: str) -> tuple[str, ...]:
        chance = random.Random(f"{name} {self.plan.storm}")
        return tuple(chance.sample(self.topics, chance.randrange(1, len(self.topics) + 1)))

    def restart(self, start: Callable[[], None]) -> None:
        """Start a client again after a while."""
        self.clock.after(0.01 + self.clock.random.expovariate(1 / _DOWN), start)

    # ---- the calm ---------------------------------------------------------------------------

    def settle(self) -> None:
        """End the faults, and restart whatever has ended."""
        self.calm = True
        self.noise.calm()
        self.site.disk.full = self.site.disk.failing = False
        for path in self.paths.values():
            path.heal()
        self.clock.after(0.0, self.start_daemon)
        for each in self.jobs:
            self.clock.after(1.0, partial(self.start_producer, each))
        for name in self.subscribers:
            self.clock.after(1.0, partial(self.start_subscriber, name))

    def left(self) -> list[str]:
        """The participants that are not done."""
        daemon = self.daemon
        if daemon is None or not daemon.alive or not daemon.serving:
            return ["the daemon"]
        left = [job.name for job in self.jobs if not job.done]
        if left or not daemon.engine.settled:
            return left or ["the revision"]
        head, heads = daemon.feed.core.at, daemon.feed.core.heads
        return [name for name in self.subscribers if not self._reached(name, head, heads)]

    def _reached(self, name: str, head: int, heads: Mapping[str, int]) -> bool:
        follower = self.watchers.get(name) or self.healers.get(name)
        if follower is None or not follower.alive or not follower.listens:
            return False
        if isinstance(follower, Healer):
            return follower.reached(head)
        return all(follower.core.last.get(topic) == heads[topic] for topic in follower.topics)

    def ended(self) -> bool:
        """Whether the daemon, after a request, has drained, and every subscriber knows that."""
        if self.daemon is not None and self.daemon.serving:
            self.daemon.drain()
        followers = [*self.watchers.values(), *self.healers.values()]
        return self._drained and all(follower.core.ended for follower in followers)


def run(
    seed: int,
    daemon: type[DaemonHost] = DaemonHost,
    trace: Callable[[str], None] | None = None,
) -> RunReport:
    """Run a seed; Violation for a broken promise. trace: called with a line for each event."""
    with capture_logs():
        return _run(World(seed, daemon, trace))


def _run(world: World) -> RunReport:
    clock, storm = world.clock, Storm(world)
    clock.note("plan", str(world.plan))
    world.begin()
    storm.begin()
    clock.run(world.plan.storm)
    storm.end()
    clock.note("calm", "no more faults")
    world.settle()
    _run_until(world, _CALM_SECONDS, lambda: not world.left())
    if left := world.left():
        violated("progress", f"after {_CALM_SECONDS:g} s without faults: {left}")
    assert world.daemon is not None
    journal = world.daemon.journal
    world.over = True
    _run_until(world, _END_SECONDS, world.ended)
    if not world.ended():
        violated("progress", "the end of the daemon is not known to all subscribers")
    for healer in world.healers.values():
        healer.reached(journal.head)
    messages = world.promises.finish(world.daemon.journal, world.jobs, world.totals)
    return RunReport(clock.now, clock.steps, storm.counts, world.starts, journal.head, messages)


def _run_until(world: World, seconds: float, done: Callable[[], bool]) -> None:
    """Let time pass until ``done``, which is checked now and then."""
    clock, end = world.clock, world.clock.now + seconds
    while clock.now < end and not done():
        clock.run(clock.now + _LOOK_SECONDS)
