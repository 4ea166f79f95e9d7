"""Sync without sockets: a refused request changes nothing, and credit is never exceeded."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import msgpack

from streamer.daemon.core.sync import SyncLimits
from tests.fuzz import page
from tests.sync_records import TOPICS, Records

_LIMITS = SyncLimits(connections=4, pulls=3, pull_bytes=2000, memory_bytes=8000)
_ROUTES = b"a", b"b", b"c", b"d", b"e"
_RECORDS = 12
# route and number of the honest pull
_HONEST, _NUMBER = b"honest", 1


class SyncSide:
    """A daemon's sync, with an honest pull of everything besides fuzzed requests."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.records = Records(_LIMITS)
        for _ in range(_RECORDS):
            self.records.commit([t for t in TOPICS if rng.random() < 0.7] or ["read"])
        self.records.pull(_HONEST, _NUMBER)
        self.pulled: list[tuple[str, int]] = []
        self._hear()

    def take(self, frames: Sequence[bytes]) -> str:
        """Take a fuzzed request; returns its type, or why it is refused."""
        core = self.records.core
        route = self.rng.choice(_ROUTES)
        before = self._state()
        kind, reasons = "", frozenset[str]()
        try:
            fields, data = page.opened(frames)
            page.check_sync(fields, data)
            kind = fields["type"]
        except page.Faulty as faulty:
            reasons = faulty.reasons
        core.hear(route, frames, self.records.now)
        told = [msgpack.unpackb(said[0]) for to, said in core.out if to == route]
        refused = [one for one in told if one["type"] == "refused"]
        if not kind:
            assert len(refused) == 1 and refused[0]["reason"] in reasons, (refused, reasons)
        if refused:
            assert self._state() == before, "a refused request has changed something"
            reason = refused[0]["reason"]
            used = reason == "malformed" and kind in ("pull", "snapshot")
            assert not kind or reason == "credit" or used, (kind, reason)
            kind = str(reason)
        assert sum(window for *_, window in self._state()[0]) <= _LIMITS.memory_bytes
        self._hear()
        return kind

    def _state(self) -> Any:
        core = self.records.core
        flows = sorted((*key, flow.window) for key, flow in core._flows.items())
        return flows, dict(core._spoken).keys()

    def go_on(self) -> None:
        """Read and send records, add some, end a connection."""
        self.records.now += self.rng.choice((0.0, 0.1, 1.1))
        self.records.work(self.rng.randrange(12))
        self.records.core.tick(self.records.now)
        if self.rng.random() < 0.1:
            self.records.core.gone(self.rng.choice(_ROUTES))
        if self.rng.random() < 0.2:
            self.records.commit(["read"])
        self._hear()

    def _hear(self) -> None:
        """Process what the honest client gets, and give credit for it."""
        out, self.records.core.out = self.records.core.out, []
        for route, frames in out:
            fields, body = page.opened([*map(bytes, frames)])
            assert fields["type"] != "refused" or fields["reason"] in page.REASONS
            if route == _HONEST and fields["type"] == "message":
                at = msgpack.unpackb(body[1])["at"]
                self.pulled.append((fields["topic"], at))
                read = sum(map(len, body))
                self.records.hear(_HONEST, type="credit", id=_NUMBER, bytes=read)

    def end(self) -> None:
        """Check that the honest client has every message once."""
        self.records.work(10_000)
        self._hear()
        self.records.work(10_000)
        self._hear()
        wanted = [(f"{topic}.", one.at) for one in self.records.records for topic in one.prev]
        assert self.pulled == wanted
