"""A client of sync in plain pyzmq and msgpack, written from docs/protocol.md alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgpack
import zmq

from tests.faults.plain_client import Header, seal, unseal


class PlainPuller:
    """Pulls the messages on some topics after a record, and gives credit for what it has read.

    messages: by (topic, at), what they say but for when and by whom, and their frames. order: the
    keys as they came. at: everything up to this record is there.
    """

    def __init__(
        self,
        context: zmq.Context[Any],
        endpoint: str,
        topics: Sequence[str],
        *,
        stream: str = "",
        after: int = 0,
        until: int | None = None,
        window: int = 1 << 20,
    ) -> None:
        self._socket = context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.RECONNECT_IVL, 5)
        self._socket.setsockopt(zmq.RCVHWM, 0)
        self._socket.connect(endpoint)
        self._topics = list(topics)
        self._window = window
        self._number = 0
        self.stream = stream
        self.at = after
        self.until = until
        self.messages: dict[tuple[str, int], tuple[Header, list[bytes]]] = {}
        self.order: list[tuple[str, int]] = []
        self.bytes = 0
        self._last: dict[str, int] = {}
        self.heads: dict[str, int] = {}
        self.answers: list[Header] = []
        """All but messages."""
        self.pull()

    def close(self) -> None:
        self._socket.close()

    def pull(self) -> None:
        """Ask for what follows; what an earlier pull still brings is passed over."""
        self._number += 1
        request = {"type": "pull", "stream": self.stream, "after": self.at, "topics": self._topics}
        request["credit"] = self._window
        if self.until is not None:
            request["until"] = self.until
        self.ask(**request)

    def ask(self, **request: Any) -> None:
        header = {"v": 2, "id": self._number} | request
        self._socket.send_multipart(seal([msgpack.packb(header)]))

    def step(self, milliseconds: int = 0) -> bool:
        """Take one message; whether there was one."""
        if not self._socket.poll(milliseconds):
            return False
        first, *frames = unseal(self._socket.recv_multipart())
        answer = msgpack.unpackb(first)
        assert answer["v"] == 2
        if answer.get("id", self._number) != self._number:
            return True
        if answer["type"] == "message":
            self._take(answer, frames)
            return True
        self.answers.append(answer)
        if answer["type"] == "reached":
            self.at = answer["at"]
            self.stream = answer["stream"]
            self.heads = answer["heads"]
        return True

    def _take(self, answer: Header, frames: list[bytes]) -> None:
        topic, first, *rest = frames
        header = msgpack.unpackb(first)
        assert answer["topic"] == topic.decode() == header["topic"]
        key = topic.decode().removesuffix("."), header["at"]
        content = {k: v for k, v in header.items() if k not in ("epoch", "time")}
        assert key not in self.messages, f"{key} came twice"
        if self.order:
            assert self.order[-1][1] <= key[1], "out of order"
        last = self._last.get(key[0], header["prev"])
        assert header["prev"] <= last < key[1], "a hole"
        self._last[key[0]] = key[1]
        self.messages[key] = content, rest
        self.order.append(key)
        size = sum(map(len, frames))
        self.bytes += size
        self.ask(type="credit", bytes=size)
