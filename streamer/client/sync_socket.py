"""The clients' connection to sync."""

from __future__ import annotations

from collections import deque

import zmq

from streamer.client.connection import Connection, Context, Keys
from streamer.protocol.header import Buffer
from streamer.protocol.transport.copying import Copier

# a message has at most 30 frames; one with more than this is damaged
_MOST_FRAMES = 32


class SyncSocket(Connection):
    """A connection that never blocks: not for room, for a message or for a missing daemon."""

    def __init__(
        self, endpoint: str, answer_seconds: float, context: Context | None, keys: Keys = None
    ) -> None:
        super().__init__(endpoint, answer_seconds, context, zmq.DEALER, {}, keys)
        self.socket = self._socket
        self._copier = Copier(self._socket, frames=_MOST_FRAMES)

    def take(self) -> tuple[list[memoryview], int | None] | None:
        """A message that has come, as ``Copier.take`` returns it."""
        return self._copier.take()

    def send(self, requests: deque[list[Buffer]]) -> None:
        """Send requests; without room they are dropped, since unanswered requests are repeated."""
        while requests:
            self._post(requests.popleft())
