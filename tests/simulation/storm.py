"""Causes the faults of a plan."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamer.daemon.core.log import Replay
from streamer.daemon.core.sync import SyncLimits
from tests.simulation.model_journal import DATA, SNAPSHOT

if TYPE_CHECKING:
    from tests.simulation.world import World

_STEPS = 60
_LONGEST_SECONDS = 4.0


class Storm:
    """The source of faults. counts: faults that had an effect, by kind."""

    def __init__(self, world: World) -> None:
        self.counts: Counter[str] = Counter()
        self._world = world
        self._over = False

    def begin(self) -> None:
        """Begin to cause faults."""
        for kind in self._world.plan.rates:
            self._plan(kind)

    def end(self) -> None:
        """Cause no more faults, and cancel those planned for a few steps later."""
        self._over = True
        if (daemon := self._world.daemon) is not None:
            daemon.spare()

    def _plan(self, kind: str) -> None:
        world = self._world
        wait = world.clock.random.expovariate(world.plan.rates[kind])
        world.clock.after(wait, lambda: self._happen(kind))

    def _happen(self, kind: str) -> None:
        if self._over:
            return
        if getattr(self, f"_{kind}")():
            self.counts[kind] += 1
        self._plan(kind)

    def _seconds(self) -> float:
        """A random duration, usually short."""
        chance = self._world.clock.random
        return min(chance.expovariate(chance.choice((10.0, 1.0, 0.3))), 2 * _LONGEST_SECONDS)

    def _steps(self) -> int:
        """A random number of steps until the daemon is killed."""
        chance = self._world.clock.random
        return chance.choice((0, chance.randrange(_STEPS)))

    def _client(self) -> str | None:
        """The name of a client that has already been started."""
        names = [*self._world.paths]
        return self._world.clock.random.choice(names) if names else None

    # ---- the daemon and its machine ---------------------------------------------------------

    def _kill(self) -> bool:
        world, daemon = self._world, self._world.daemon
        if daemon is None or not daemon.alive or daemon.doomed:
            return False
        daemon.doom(self._steps(), world.restart_daemon)
        return True

    def _power(self) -> bool:
        world, daemon = self._world, self._world.daemon
        if daemon is None or not daemon.alive or daemon.doomed:
            return False

        def cut() -> None:
            if (replay := getattr(daemon, "replay", None)) is not None and replay.process:
                replay.process.kill("no power")
            world.site.disk.cut_power()
            world.restart_daemon()

        daemon.doom(self._steps(), cut)
        return True

    def _sync(self) -> bool:
        self._world.site.disk.failing = True
        return True

    def _full(self) -> bool:
        disk = self._world.site.disk
        if disk.full:
            return False
        disk.full = True
        self._world.clock.note("disk", "has no room")
        self._world.clock.after(self._seconds(), self._room)
        return True

    def _room(self) -> None:
        self._world.site.disk.full = False

    def _flip(self) -> bool:
        """A bit of a record that is kept, or of the snapshot."""
        world, daemon = self._world, self._world.daemon
        chance, disk = world.clock.random, world.site.disk
        if daemon is None or not daemon.serving:
            return False
        committed = daemon.journal.committed
        rows = [row for row in committed.rows.values() if sum(row.lengths)]
        snapshot = committed.snapshot
        if snapshot is not None and chance.random() < 0.2 and (name := snapshot.file) in disk.files:
            assert name.startswith(SNAPSHOT)
            if not (size := len(disk.files[name])):
                return False
            place, at = (name, chance.randrange(size)), None
        elif rows:
            row = chance.choice(rows)
            place, at = (DATA, row.offset + chance.randrange(sum(row.lengths))), row.at
        else:
            return False
        world.promises.flips(daemon.journal, at)
        world.clock.note("disk", f"a bit of {place[0]} flips at {place[1]}")
        disk.flip(*place, chance.randrange(8))
        return True

    def _drain(self) -> bool:
        daemon = self._world.daemon
        if daemon is None or not daemon.serving:
            return False
        daemon.drain()
        return True

    def _reload(self) -> bool:
        """The files of the dictionary change, and the daemon is asked to read them again."""
        daemon = self._world.daemon
        if daemon is None or not daemon.serving or not daemon.engine.ready:
            return False
        self._world.choose_sources()
        daemon.engine.reload()
        return True

    def _replay(self) -> bool:
        daemon = self._world.daemon
        if daemon is None or not daemon.serving or daemon.replay.process is None:
            return False
        daemon.replay.process.kill("by itself")
        return True

    def _stop(self) -> bool:
        daemon = self._world.daemon
        if daemon is None or not daemon.alive:
            return False
        daemon.stall(self._seconds())
        return True

    # ---- clients and their network ----------------------------------------------------------

    def _producer(self) -> bool:
        world = self._world
        running = [p for p in world.producers.values() if p.alive]
        if not running:
            return False
        producer = world.clock.random.choice(running)
        producer.kill("by a fault")
        world.restart(lambda: world.start_producer(producer.job))
        return True

    def _subscriber(self) -> bool:
        world = self._world
        running = [n for n, s in [*world.watchers.items(), *world.healers.items()] if s.alive]
        if not running:
            return False
        name = world.clock.random.choice(running)
        (world.watchers.get(name) or world.healers[name]).kill("by a fault")
        world.restart(lambda: world.start_subscriber(name))
        return True

    def _part(self) -> bool:
        world = self._world
        if (name := self._client()) is None or (path := world.paths[name]).parted:
            return False
        path.part()
        world.clock.note(name, "is parted from the daemon")
        world.clock.after(self._seconds(), path.heal)
        return True

    def _break(self) -> bool:
        world = self._world
        if (name := self._client()) is None:
            return False
        world.paths[name].break_connections()
        world.clock.note(name, "loses its connections")
        return True

    def _stall(self) -> bool:
        world = self._world
        if (name := self._client()) is None:
            return False
        client = world.producers.get(name) or world.watchers.get(name) or world.healers.get(name)
        if client is None or not client.alive:
            return False
        client.stall(self._seconds())
        world.clock.note(name, "stands still")
        return True


FAULTS = {
    "kill": "the daemon is killed, now or a few of its steps later",
    "power": "the power of the daemon's machine goes: what was not synced survives in part",
    "sync": "the next sync of the disk fails",
    "full": "the disk is full for a while",
    "flip": "a bit of a stored record or snapshot flips",
    "drain": "the daemon is asked to drain, and started again",
    "reload": "the dictionary's files change, and the daemon reads them again",
    "replay": "the process of sync is killed",
    "producer": "a producer is killed",
    "subscriber": "a subscriber is killed",
    "part": "a client's machine and the daemon's are parted for a while",
    "break": "all connections of a client break",
    "stall": "a client stands still for a while",
    "stop": "the daemon stands still for a while",
}

ONLY_SYNCED = frozenset({"power", "sync"})
"""Faults that durability ``os`` does not promise to survive, or that cannot happen with it."""

_MOST_PER_SECOND = {"flip": 0.1, "drain": 0.2}


@dataclass
class StormPlan:
    """The plan. storm: seconds in which faults happen. rates: how often each does, per second.

    drop, repeat, reorder, flip: fractions of messages on the feed; flip also on other sockets.
    watchers, healers, fetchers: subscribers that only follow, that heal, that fetch the state.
    feed_bytes, feed_messages: limits of what may wait for all of them, and for one. healing_bytes:
    the limit of live messages that wait in a healing one.
    grows: whether the dictionary does; max_kmers: its limit, 0 for none. new_sources: whether its
    files change between starts.
    """

    storm: float
    rates: dict[str, float]
    durability: str
    producers: list[int]
    watchers: int
    healers: int
    fetchers: int
    latency: float
    drop: float
    repeat: float
    reorder: float
    flip: float
    memory_bytes: int
    max_batch_bytes: int
    beat_seconds: float
    feed_messages: int
    feed_bytes: int
    healing_bytes: int
    sync_limits: SyncLimits
    snapshot_after: Replay
    keep_records: int
    revised_records: int
    grows: bool
    new_sources: bool
    max_kmers: int

    @classmethod
    def of(cls, seed: int) -> StormPlan:
        """The plan of a seed."""
        chance = random.Random(f"plan {seed}")
        durability = chance.choice(("fsync", "fsync", "fsync", "os"))
        kinds = [f for f in FAULTS if durability == "fsync" or f not in ONLY_SYNCED]
        # a crash and a few other faults: all kinds at once would hide each other
        crash = chance.choice(("kill", "power")) if durability == "fsync" else "kill"
        chosen = [crash, *chance.sample(kinds, chance.randrange(1, 6))]
        rates = {
            kind: min(chance.choice((0.1, 0.3, 1.0)), _MOST_PER_SECOND.get(kind, 1.0))
            for kind in kinds
            if kind in chosen
        }
        batch = chance.choice((100, 200))
        pull = chance.choice((300, 2000, 1 << 20))
        return cls(
            storm=chance.uniform(4.0, 15.0),
            rates=rates,
            durability=durability,
            producers=[chance.randrange(1, 25) for _ in range(chance.choice((1, 2, 2, 3)))],
            watchers=chance.randrange(2),
            healers=chance.choice((0, 1, 1, 2)),
            fetchers=chance.choice((0, 0, 1)),
            latency=chance.choice((0.0002, 0.002, 0.02)),
            drop=chance.choice((0.0, 0.01, 0.1)),
            repeat=chance.choice((0.0, 0.0, 0.05)),
            reorder=chance.choice((0.0, 0.01, 0.1)),
            flip=chance.choice((0.0, 0.0, 0.0, 0.005)),
            memory_bytes=batch * chance.choice((1, 2, 8, 1000)),
            max_batch_bytes=batch,
            beat_seconds=chance.choice((0.25, 1.0)),
            feed_messages=chance.choice((16, 1000)),
            feed_bytes=chance.choice((1000, 1 << 20)),
            healing_bytes=chance.choice((1000, 1 << 20)),
            sync_limits=SyncLimits(chance.choice((2, 16)), 4, pull, pull * chance.choice((2, 16))),
            snapshot_after=Replay(1 << 20, 1 << 20, chance.choice((3, 10, 1000))),
            keep_records=chance.choice((0, 0, 5, 30)),
            revised_records=chance.choice((1, 4, 64)),
            grows=chance.random() < 0.6,
            new_sources=chance.random() < 0.2,
            max_kmers=chance.choice((0, 0, 10, 50)),
        )

    def __str__(self) -> str:
        faults = ", ".join(f"{kind} {rate}/s" for kind, rate in self.rates.items())
        return f"{self.durability}, {self.storm:.1f} s of {faults}"
