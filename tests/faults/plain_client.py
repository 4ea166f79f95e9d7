"""Clients in plain pyzmq and msgpack, written from docs/protocol.md alone."""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence
from typing import Any

import msgpack
import zmq
from crc32c import crc32c

Header = dict[str, Any]

# silence after which a producer asks again
_SILENT_SECONDS = 1.0


def seal(frames: Sequence[bytes]) -> list[bytes]:
    """The frames, and the checksum of all of them."""
    return [*frames, struct.pack("<I", crc32c(b"".join(frames)))]


def unseal(frames: Sequence[bytes]) -> list[bytes]:
    """The frames without their checksum, which must be right."""
    *rest, last = frames
    assert struct.unpack("<I", last) == (crc32c(b"".join(rest)),), "damaged"
    return rest


class PlainProducer:
    """Sends batches and resends them until they are durable.

    ``acked``: batches of this epoch that the daemon has reported durable.
    """

    def __init__(self, context: zmq.Context[Any], endpoint: str, name: str, epoch: int) -> None:
        self._context = context
        self._endpoint = endpoint
        self.name = name
        self.epoch = epoch
        self.batches: list[tuple[bytes, list[bytes]]] = []
        """Mark and frames of every batch of the epoch so far."""
        self.acked = 0
        self.mark: bytes | None = None
        self.spoken = False
        """Whether the daemon has answered on this connection."""
        self._session = 0
        self._sent = 0
        self._credit = 0
        self._heard = 0.0
        self._socket: zmq.Socket[bytes] | None = None

    @property
    def socket(self) -> zmq.Socket[bytes]:
        assert self._socket is not None
        return self._socket

    def connect(self) -> None:
        """Reconnect, as after a restart of the daemon, and ask for its state."""
        self.close()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.RECONNECT_IVL, 5)
        self._socket.connect(self._endpoint)
        self._sent = self._credit = 0
        self.spoken = False
        self.hello()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()

    def hello(self) -> None:
        self._heard = time.monotonic()
        header = {"v": 2, "type": "hello", "versions": [2]}
        self._send(header | {"producer": self.name, "epoch": self.epoch})

    def add(self, frames: list[bytes], mark: bytes) -> None:
        """One more batch to send, in columns."""
        self.batches.append((mark, frames))

    @property
    def finished(self) -> bool:
        return self.acked == len(self.batches)

    def step(self) -> None:
        """Process what has come, and send as much as there is credit for."""
        if time.monotonic() - self._heard > _SILENT_SECONDS:
            self.hello()
        while self.socket.poll(0):
            self._heard = time.monotonic()
            (frame,) = unseal(self.socket.recv_multipart())
            self._hear(msgpack.unpackb(frame))
        in_flight = 0
        while self._sent < len(self.batches):
            mark, frames = self.batches[self._sent]
            size = sum(map(len, frames))
            if in_flight + size > self._credit:
                break
            in_flight += size
            self._sent += 1
            header = {"v": 2, "type": "batch", "producer": self.name, "epoch": self.epoch}
            header |= {"seq": self._sent, "form": "columns", "mark": mark}
            self._send(header, *frames)
        self._credit -= in_flight

    def _send(self, header: Header, *frames: bytes) -> None:
        self.socket.send_multipart(seal([msgpack.packb(header), *frames]))

    def _hear(self, header: Header) -> None:
        assert header["type"] in ("welcome", "ack"), f"refused: {header}"
        if header["epoch"] != self.epoch:
            return
        if not self.spoken:
            assert header["session"] > self._session, "an epoch was used twice"
            self._session = header["session"]
        self.spoken = True
        assert header["session"] == self._session
        received, durable = header["received"], header["durable"]
        assert durable >= self.acked, f"lost: {durable} after {self.acked} were durable"
        assert received <= len(self.batches)
        self.acked = durable
        if header["type"] == "welcome":
            self._sent = received
            self.mark = header.get("mark")
            expected = self.batches[durable - 1][0] if durable else None
            # an earlier epoch of the name may have left a mark
            assert durable == 0 or self.mark == expected, "another batch's mark"
        self._sent = max(self._sent, received)
        # bytes in flight beyond ``received`` count against the credit
        on_the_way = sum(
            len(f) for _, frames in self.batches[received : self._sent] for f in frames
        )
        self._credit = header["credit"] - on_the_way
