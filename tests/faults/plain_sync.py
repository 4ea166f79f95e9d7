"""A client of sync in plain pyzmq and msgpack, written from docs/protocol.md alone."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import msgpack
import zmq

from tests.faults.plain_client import Header, seal, unseal

# a daemon sends something once a second on every connection with a pull
_SILENT_SECONDS = 3.0


class PlainPuller:
    """Pulls the messages on some topics after a record, and gives credit for what it has read.

    messages: by (topic, at), their contents without time and epoch, and their frames. order: the
    keys in the order of arrival. at: everything up to this record has come.
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
        self.head = 0
        self.answers: list[Header] = []
        """Answers other than messages."""
        self._heard = time.monotonic()
        self.pull()

    @property
    def socket(self) -> zmq.Socket[bytes]:
        return self._socket

    @property
    def heard(self) -> float:
        """When the daemon last sent something, in seconds of the monotonic clock."""
        return self._heard

    @property
    def silent(self) -> bool:
        """Whether the pull is lost, perhaps with the process that served it: begin another one."""
        return time.monotonic() > self._heard + _SILENT_SECONDS

    def close(self) -> None:
        self._socket.close()

    def pull(self) -> None:
        """Ask for what follows; late answers to an earlier pull are ignored."""
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
        """Process one message; returns whether there was one."""
        if not self._socket.poll(milliseconds):
            return False
        self._heard = time.monotonic()
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
            self.head = answer["head"]
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


def fetch_state(
    context: zmq.Context[Any], endpoint: str, milliseconds: int
) -> tuple[Header, bytes]:
    """The last stored state: the fields of its parts, and its k-mers."""
    socket = context.socket(zmq.DEALER)
    socket.setsockopt(zmq.LINGER, 0)
    socket.connect(endpoint)
    try:
        request = {"v": 2, "type": "snapshot", "id": 1, "credit": 1 << 20}
        kmers = b""
        while True:
            socket.send_multipart(seal([msgpack.packb(request)]))
            assert socket.poll(milliseconds), "no snapshot"
            first, part = unseal(socket.recv_multipart())
            answer = msgpack.unpackb(first)
            assert answer["type"] == "snapshot", answer
            kmers += part
            if answer["part"] == answer["parts"]:
                return answer, kmers
            request = {"v": 2, "type": "credit", "id": 1, "bytes": len(part)}
    finally:
        socket.close()
