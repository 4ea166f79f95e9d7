"""``Control``: asks the daemon for its status, and sends it commands."""

from __future__ import annotations

import time
from typing import Any

import zmq

from streamer.client.client_errors import DaemonError, DaemonSilentError, RefusedError
from streamer.client.connection import Connection, Context
from streamer.protocol.header import PROTOCOL, Header, WireError, pack, seal, unpack, unseal

# between two questions whether a daemon that takes long is still there
_ASK_SECONDS = 1.0


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

    def reload(self) -> Header:
        """Have the daemon read the sources of its dictionary anew, however long that takes.

        The reply says what counts from now on (docs/protocol.md, section Control). RefusedError if
        the old dictionary stays, DaemonSilentError if the daemon falls silent.
        """
        number = self._ask("reload")
        heard = asked = time.monotonic()
        while (now := time.monotonic()) < heard + self._answer_seconds:
            if now > asked + _ASK_SECONDS:
                # whether it is there
                self._ask("status")
                asked = now
            reply = self._receive(_ASK_SECONDS)
            if reply is not None:
                heard = time.monotonic()
                if reply.get("id") == number:
                    return self._accepted(reply)
        raise DaemonSilentError(self.endpoint, self._answer_seconds)

    def request(self, command: str, **fields: Any) -> Header:
        """The reply to one command.

        RefusedError if the daemon refuses it, DaemonSilentError if it does not reply in time.
        """
        number = self._ask(command, **fields)
        deadline = time.monotonic() + self._answer_seconds
        while (left := deadline - time.monotonic()) > 0:
            reply = self._receive(left)
            # others are late replies to requests given up
            if reply is not None and reply.get("id") == number:
                return self._accepted(reply)
        raise DaemonSilentError(self.endpoint, self._answer_seconds)

    def _ask(self, command: str, **fields: Any) -> int:
        """Send a request; its number."""
        self._requests += 1
        request = {"v": PROTOCOL, "id": self._requests, "command": command} | fields
        self._socket.send_multipart(seal([pack(request)]))
        return self._requests

    def _receive(self, seconds: float) -> Header | None:
        """The next reply, if one comes in time."""
        if not self._socket.poll(int(seconds * 1000) + 1):
            return None
        try:
            return unpack(unseal(self._socket.recv_multipart())[0])
        except WireError as error:
            raise DaemonError(self.endpoint, f"invalid reply: {error}") from None

    def _accepted(self, reply: Header) -> Header:
        if not reply.get("ok"):
            raise RefusedError(self.endpoint, reply)
        return reply
