"""The feed's sockets, XPUB to SUB: messages without room at a subscriber are lost silently.

In addition the network drops, repeats, reorders and damages messages, unlike TCP: the promises of
clients must not depend on it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.simulation.clock import Process
from tests.simulation.network import Channel, Frames, Path

# how many of a connection's waiting bytes the kernel holds
_KERNEL_BYTES = 512
_RECONNECT_SECONDS = 0.1


@dataclass(frozen=True)
class Subscribed:
    """A connection subscribes to a prefix, or has ended."""

    number: int
    prefix: bytes = b""
    ended: bool = False


class FeedEndpoint:
    """An address of a feed."""

    def __init__(self) -> None:
        self.server: FeedServer | None = None


class FeedServer:
    """The socket of a daemon's feed. inbox: subscriptions. room: messages for one connection."""

    def __init__(
        self,
        process: Process,
        endpoint: FeedEndpoint,
        wake: Callable[[], None],
        *,
        room: int,
    ) -> None:
        self.process = process
        self.connections: dict[int, FeedLink] = {}
        self.inbox: deque[Subscribed] = deque()
        self.wake = wake
        self._endpoint = endpoint
        self._room = room
        self._number = 0
        endpoint.server = self
        process.at_end.append(self.close)

    def connect(self, client: FeedClient) -> FeedLink:
        """A client connects."""
        self._number += 1
        connection = self.connections[self._number] = FeedLink(self._number, self, client)
        return connection

    def send(self, frames: Frames) -> None:
        """Send a message to all its subscribers."""
        for connection in [*self.connections.values()]:
            if frames[0].startswith(connection.prefixes):
                connection.send(frames, self._room)

    @property
    def held(self) -> int:
        """Bytes that wait for connections in the daemon's memory."""
        waiting = sum(connection.queued for connection in self.connections.values())
        return waiting - sum(self.in_kernel().values())

    def in_kernel(self) -> dict[int, int]:
        """Bytes that the kernel holds for each connection."""
        return {n: min(c.queued, _KERNEL_BYTES) for n, c in self.connections.items()}

    def close(self) -> None:
        """End all connections; messages in flight arrive."""
        if self._endpoint.server is self:
            self._endpoint.server = None
        for connection in [*self.connections.values()]:
            connection.end(lossy=not self.process.alive)


class FeedLink:
    """A subscriber's connection. queued: bytes it has not received. prefixes: those applied."""

    def __init__(self, number: int, server: FeedServer, client: FeedClient) -> None:
        self.number = number
        self.prefixes: tuple[bytes, ...] = ()
        self.queued = 0
        self._server = server
        self._client = client
        path = client.path
        self._up: Channel[bytes] = Channel(path, server.process, self._subscribe)
        self._down: Channel[Frames] = Channel(path, client.process, self._deliver)
        self._path_number = path.connect(self.end)
        for prefix in client.prefixes:
            self._up.send(prefix)

    def send(self, frames: Frames, room: int) -> None:
        """Send a message, if there is room for it."""
        path, noise = self._client.path, self._client.path.noise
        if len(self._down.waiting) >= room or path.chance(noise.drop):
            return
        for _ in range(1 + path.chance(noise.repeat)):
            self.queued += sum(map(len, frames))
            self._down.send(frames, overtakes=path.chance(noise.reorder))

    def end(self, *, lossy: bool = True) -> None:
        """End the connection; lossy: some messages in flight are lost."""
        server, client = self._server, self._client
        if server.connections.pop(self.number, None) is None:
            return
        server.inbox.append(Subscribed(self.number, ended=True))
        server.wake()
        self._up.end(0)
        left = len(self._down.waiting)
        self._down.end(client.path.clock.random.randint(0, left) if lossy else left)
        client.path.close(self._path_number)
        client.lost()

    def _subscribe(self, prefix: bytes) -> None:
        self._server.inbox.append(Subscribed(self.number, prefix))
        self._server.wake()

    def _deliver(self, frames: Frames) -> None:
        self.queued -= sum(map(len, frames))
        self._client.inbox.append(self._client.path.damaged(frames))
        self._client.wake()


class FeedClient:
    """A subscriber's socket, which reconnects whenever it is disconnected."""

    def __init__(
        self,
        process: Process,
        path: Path,
        endpoint: FeedEndpoint,
        prefixes: Sequence[bytes],
        wake: Callable[[], None],
    ) -> None:
        self.process = process
        self.path = path
        self.prefixes = tuple(prefixes)
        self.inbox: deque[Frames] = deque()
        self.connection: FeedLink | None = None
        self.wake = wake
        self._endpoint = endpoint
        process.at_end.append(self.close)
        self._try()

    def close(self) -> None:
        """End the connection for good."""
        if self.connection is not None:
            self.connection.end()

    def lost(self) -> None:
        """The connection has ended."""
        self.connection = None
        if self.process.alive:
            self.process.after(_RECONNECT_SECONDS, self._try)

    def _try(self) -> None:
        server = self._endpoint.server
        if server is None or self.path.parted:
            self.process.after(_RECONNECT_SECONDS, self._try)
        else:
            self.connection = server.connect(self)
