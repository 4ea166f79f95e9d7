"""The clients' connection to sync."""

from __future__ import annotations

from collections import deque

import zmq

from streamer.client.connection import Connection, Context, Keys
from streamer.protocol.header import Buffer
from streamer.protocol.transport.copying import Copier

# a message has at most 30; one of more than this is damaged
_MOST_FRAMES = 32


class SyncSocket(Connection):
    """Never waits: not for room, nor for a message, nor for a daemon that is away."""

    def __init__(
        self, endpoint: str, answer_seconds: float, context: Context | None, keys: Keys = None
    ) -> None:
        super().__init__(endpoint, answer_seconds, context, zmq.DEALER, {}, keys)
        self.socket = self._socket
        self._copier = Copier(self._socket, frames=_MOST_FRAMES)

    def take(self) -> tuple[list[memoryview], int | None] | None:
        """A message that has come, as ``Copier.take``."""
        return self._copier.take()

    def send(self, requests: deque[list[Buffer]]) -> None:
        """Send requests; those without room are dropped, as what is not answered is repeated."""
        while requests:
            self._post(requests.popleft())
