"""The plan of a run, all from its seed: participants, limits and faults."""

from __future__ import annotations

import random
from dataclasses import dataclass

from streamer.daemon.core.log import Replay
from streamer.daemon.core.sync import SyncLimits

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
