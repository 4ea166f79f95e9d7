"""Control without sockets: each request gets one reply, and a refused request has no effect."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import msgpack

from streamer.daemon.config import load
from streamer.daemon.control import ControlWorker
from streamer.daemon.core.life import RUNNING
from streamer.daemon.core.rights import EVERYTHING
from streamer.daemon.daemon_status import DaemonStatus
from tests.fuzz import page

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
