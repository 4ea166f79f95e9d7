"""A client of control in plain pyzmq and msgpack, written from docs/protocol.md alone."""

from __future__ import annotations

from typing import Any

import msgpack
import zmq

from tests.faults.plain_client import Header, seal, unseal


class PlainControl:
    """Sends requests, and receives replies whenever they come; ``replies``: by request number."""

    def __init__(self, context: zmq.Context[Any], endpoint: str) -> None:
        self.socket = context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.RECONNECT_IVL, 5)
        self.socket.connect(endpoint)
        self.replies: dict[int, Header] = {}
        self._number = 0

    def close(self) -> None:
        self.socket.close()

    def ask(self, command: str, **fields: Any) -> int:
        """Send a request; returns its number."""
        self._number += 1
        header = {"v": 2, "command": command, "id": self._number} | fields
        self.socket.send_multipart(seal([msgpack.packb(header)]))
        return self._number

    def step(self) -> None:
        while self.socket.poll(0):
            (frame,) = unseal(self.socket.recv_multipart())
            reply = msgpack.unpackb(frame)
            self.replies[reply["id"]] = reply
