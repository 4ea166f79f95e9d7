"""The sides of control, feed and sync, as the fuzzer sees them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, cast

import msgpack

from streamer.daemon.config import load
from streamer.daemon.control import ControlWorker
from streamer.daemon.core.feed import MAX_IGNORED, Subscriptions
from streamer.daemon.core.life import RUNNING
from streamer.daemon.core.rights import EVERYTHING
from streamer.daemon.core.sync import SyncLimits
from streamer.daemon.daemon_status import DaemonStatus
from tests.fuzz import page
from tests.sync_records import TOPICS, Records

_ROUTE = b"asks"
_CONFIG = load(None, ["dictionary.mode=grow"], check_files=False)
_ERRORS = page.REASONS | {"sources", "busy", "damaged"}


class _Socket:
    """Collects what is sent."""

    def __init__(self) -> None:
        self.sent: list[list[bytes]] = []

    def send_multipart(self, frames: Sequence[Any], flags: int = 0) -> None:
        self.sent.append([*map(bytes, frames)])


class ControlSide:
    """A daemon's control."""

    def __init__(self) -> None:
        self.status = DaemonStatus(_CONFIG)
        self.status.state = RUNNING
        self.done: list[str] = []
        self.worker = ControlWorker(
            self.status,
            cast(Any, None),
            lambda: None,
            drain=lambda why: self.done.append("drain"),
            reload=self._reload,
            ask=self._ask,
        )
        self._socket = _Socket()

    def _reload(self, state: str, key: str, reply: Callable[..., None]) -> None:
        self.done.append("reload")
        reply({"version": 2})

    def _ask(self, batch: Any, reply: Callable[..., None]) -> None:
        self.done.append("ask")
        self._asked = batch
        reply({"version": 1}, [])

    def close(self) -> None:
        """Close what the worker has open."""
        self.worker.inbox.close()

    def take(self, frames: Sequence[bytes]) -> str:
        """Take a fuzzed request; returns the executed command, or why there was none."""
        self.done.clear()
        wanted, reasons, numbered = self._judge(frames)
        request = self.worker._obey([_ROUTE, *frames], EVERYTHING, "")
        for one in [request] if request is not None else self.worker.inbox.take():
            self.worker._keep(one)
        self.worker._reply(cast(Any, self._socket), _ROUTE)
        (sent,), self._socket.sent = self._socket.sent, []
        assert sent[0] == _ROUTE
        # a REQ socket puts an empty frame in front
        reply = sent[2:] if frames and not frames[0] else sent[1:]
        if reasons and "version" in reasons and len(reply) == 1:
            assert msgpack.unpackb(reply[0])["v"] == 1
            return "version"
        fields, _ = page.opened(reply)
        assert fields["type"] == "reply"
        if wanted:
            assert ("id" in fields) == numbered
            assert fields["ok"] or fields["reason"] in ("malformed", "sources", "busy", "denied")
            doing = [wanted] if wanted in ("drain", "reload", "ask") else []
            assert self.done == doing, (wanted, self.done)
            assert fields["ok"] or wanted not in ("status", "drain", "panel", "ask", "reload")
            return wanted if fields["ok"] else str(fields["reason"])
        assert not fields["ok"], f"done, but: {sorted(reasons)}"
        assert fields["reason"] in reasons & _ERRORS, (fields["reason"], sorted(reasons))
        assert not self.done
        return str(fields["reason"])

    def _judge(self, frames: Sequence[bytes]) -> tuple[str, frozenset[str], bool]:
        frames = frames[1:] if frames and not frames[0] else frames
        try:
            fields, data = page.opened(frames)
            return page.check_control(fields, data), frozenset(), "id" in fields
        except page.Faulty as faulty:
            return "", faulty.reasons, False

    def go_on(self) -> None:
        """End a turn."""
        self.worker._replies.clear()


class FeedSide:
    """How a daemon's feed handles messages of subscribers."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.held = Subscriptions()
        self.wanted = set[tuple[bytes, int]]()
        self.ignored = Counter[int]()

    def take(self, frames: Sequence[bytes]) -> str:
        """Take a fuzzed subscription, or the end of one."""
        frame = frames[0] if frames else b""
        kind, prefix = frame[:1], frame[1:]
        known = page.begins_a_topic(prefix)
        connection = self.rng.randrange(3)
        if kind == b"\1":
            stays = self.held.add(prefix, connection)
            if known:
                self.wanted.add((prefix, connection))
            else:
                self.ignored[connection] += 1
            assert stays == (known or self.ignored[connection] <= MAX_IGNORED)
        elif kind == b"\0":
            self.held.remove(prefix, connection)
            self.wanted.discard((prefix, connection))
        kept = {prefix.encode(): count for prefix, count in self.held.prefixes.items()}
        assert kept == Counter(prefix for prefix, _ in self.wanted)
        assert self.held.ignored == self.ignored.total()
        wires = [
            topic for topic in page.TOPICS if any(f"{topic}.".encode().startswith(p) for p in kept)
        ]
        assert self.held.topics == frozenset(wires)
        return "kept" if known else "ignored"


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
        # or it would be ended to make room, as one that has stopped
        self.records.hear(_HONEST, type="credit", id=_NUMBER, bytes=0)
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
