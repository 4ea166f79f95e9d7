"""Shared by the tests of the sync state machine: records, and the core that serves them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgpack

from streamer.daemon.core.sync import Fetch, Pull, Stored, SyncCore, SyncLimits, SyncState
from tests.daemon_kit import asked, parsed

STREAM = "0123456789abcdef"
TOPICS = ("match", "mismatch", "delta", "read")
LIMITS = SyncLimits(connections=8, pulls=4, pull_bytes=1000, memory_bytes=100_000)


class Records:
    """A stream of records, and the core that serves it."""

    def __init__(self, limits: SyncLimits = LIMITS, seed: int = 1) -> None:
        self.core = SyncCore(limits)
        self.records: list[Record] = []
        self.heads: dict[str, int] = {}
        self.oldest = 1
        self.now = 100.0
        self.lost: set[int] = set()
        self.rng = random.Random(seed)
        self.see()

    def commit(self, topics: Sequence[str], size: int = 10) -> None:
        at = len(self.records) + 1
        prev = {topic: self.heads.get(topic, 0) for topic in TOPICS if topic in topics}
        self.records.append(Record(at, prev, size))
        self.heads |= dict.fromkeys(prev, at)
        self.see()

    def see(self) -> None:
        self.core.see(Stored(STREAM, 3, self.oldest, len(self.records), dict(self.heads)))

    def hear(self, route: bytes, **fields: Any) -> None:
        self.core.hear(route, asked(fields), self.now)

    def pull(self, route: bytes, number: int, after: int = 0, **fields: Any) -> None:
        given = {"topics": list(TOPICS), "credit": 1000, "stream": STREAM} | fields
        self.hear(route, type="pull", id=number, after=after, **given)

    def work(self, turns: int = 1_000_000) -> int:
        """Serve the next flow up to ``turns`` times; returns how often there was one."""
        for done in range(turns):
            flow = self.core.turn(self.now)
            if flow is None:
                return done
            if isinstance(flow, Fetch):
                if flow.parts is None:
                    self.core.give_state(flow, SyncState(0, {}, 1, [b"k-mers"]))
                self.core.go_on(flow, self.now)
                continue
            assert isinstance(flow, Pull)
            left = [r for r in self.records[flow.at :] if r.at not in self.lost]
            if left:
                self.core.give(flow, left[0], self.now)
            else:
                self.core.give_up(flow, self.now)
        return turns

    def said(self) -> list[tuple[bytes, dict[str, Any], list[bytes]]]:
        out, self.core.out = self.core.out, []
        return [(route, *parsed(frames)) for route, frames in out]

    def said_types(self) -> list[str]:
        return [header["type"] for _, header, _ in self.said()]


@dataclass
class Record:
    at: int
    prev: Mapping[str, int]
    size: int

    def message(self, topic: str) -> list[bytes]:
        head = {"at": self.at, "prev": self.prev[topic]}
        return [f"{topic}.".encode(), msgpack.packb(head), bytes(self.size)]


def at_of(frames: Sequence[bytes]) -> int:
    return int(msgpack.unpackb(frames[1])["at"])
