"""``Control``: asks the daemon how it is, and tells it what to do."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any

import zmq

from streamer.client.connection import Connection, Context
from streamer.client.errors import DaemonError, DaemonSilentError, RefusedError
from streamer.protocol.header import PROTOCOL, Header, WireError, pack, unpack


class Control:
    """Requests to the daemon's control socket at ``endpoint``, one after the other."""

    def __init__(
        self,
        endpoint: str,
        *,
        answer_seconds: float = 5.0,
        context: Context | None = None,
    ) -> None:
        self.endpoint = endpoint
        self._answer_seconds = answer_seconds
        self._connection = Connection(zmq.DEALER, endpoint, {}, context)
        self._socket = self._connection.socket
        self._requests = 0

    def status(self) -> dict[str, Any]:
        """Everything the daemon tells about itself (docs/protocol.md, section Control)."""
        return dict(self.request("status")["status"])

    def drain(self) -> None:
        """Tell the daemon to finish what it has accepted and to end."""
        self.request("drain")

    def request(self, command: str, **fields: Any) -> Header:
        """The answer to one command.

        RefusedError if the daemon refuses it, DaemonSilentError if it does not answer in time.
        """
        self._requests += 1
        request = {"v": PROTOCOL, "id": self._requests, "command": command} | fields
        self._socket.send(pack(request))
        deadline = time.monotonic() + self._answer_seconds
        while (left := deadline - time.monotonic()) > 0:
            if not self._socket.poll(int(left * 1000) + 1):
                continue
            try:
                answer = unpack(self._socket.recv_multipart()[-1])
            except WireError as error:
                raise DaemonError(self.endpoint, f"answered strangely: {error}") from None
            if answer.get("id") != self._requests:
                continue  # the late answer to a request given up
            if not answer.get("ok"):
                raise RefusedError(self.endpoint, answer)
            return answer
        raise DaemonSilentError(self.endpoint, self._answer_seconds)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def __enter__(self) -> Control:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
