"""``Control``: asks the daemon for its status, and sends it commands."""

from __future__ import annotations

import time
from typing import Any

import zmq

from streamer.client.connection import Connection, Context
from streamer.client.errors import DaemonError, DaemonSilentError, RefusedError
from streamer.protocol.header import PROTOCOL, Header, WireError, pack, seal, unpack, unseal


class Control(Connection):
    """Requests to the daemon's control socket at ``endpoint``, one after the other."""

    def __init__(
        self, endpoint: str, *, answer_seconds: float = 5.0, context: Context | None = None
    ) -> None:
        super().__init__(endpoint, answer_seconds, context, zmq.DEALER, {})
        self._requests = 0

    def status(self, *, subscriptions: bool = False) -> dict[str, Any]:
        """The daemon's status (docs/protocol.md, section Control).

        subscriptions: with ``prefixes``, what the feed's connections subscribe to.
        """
        asked = {"subscriptions": True} if subscriptions else {}
        return dict(self.request("status", **asked)["status"])

    def drain(self) -> None:
        """Order the daemon to finish what it has accepted and to end."""
        self.request("drain")

    def request(self, command: str, **fields: Any) -> Header:
        """The reply to one command.

        RefusedError if the daemon refuses it, DaemonSilentError if it does not reply in time.
        """
        self._requests += 1
        request = {"v": PROTOCOL, "id": self._requests, "command": command} | fields
        self._socket.send_multipart(seal([pack(request)]))
        deadline = time.monotonic() + self._answer_seconds
        while (left := deadline - time.monotonic()) > 0:
            if not self._socket.poll(int(left * 1000) + 1):
                continue
            try:
                reply = unpack(unseal(self._socket.recv_multipart())[0])
            except WireError as error:
                raise DaemonError(self.endpoint, f"invalid reply: {error}") from None
            if reply.get("id") != self._requests:
                continue  # the late reply to a request given up
            if not reply.get("ok"):
                raise RefusedError(self.endpoint, reply)
            return reply
        raise DaemonSilentError(self.endpoint, self._answer_seconds)
