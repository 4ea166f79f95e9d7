"""Sockets over a network with delays, partitions and breaks: DEALER to ROUTER, as in ZeroMQ.

A connection delivers in order and exactly once. When it ends, some messages in flight still arrive,
the rest is lost, and the client reconnects; the server then knows it by another route.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from streamer.daemon.replay import HandedOver
from streamer.protocol.wire import Buffer
from tests.simulation.clock import EventClock, Process

Frames = list[bytes]
T = TypeVar("T")

_LONGEST_DELAY = 1.0
_RECONNECT, _RECONNECT_AT_MOST = 0.05, 1.0
_ROOM = 1000


@dataclass
class Noise:
    """How often something happens to a message, as fractions. latency: the mean, in seconds.

    drop, repeat, reorder: on the feed only; the other sockets only lose messages with connections.
    damaging: whether bits were ever flipped.
    """

    latency: float
    drop: float = 0.0
    repeat: float = 0.0
    reorder: float = 0.0
    flip: float = 0.0
    damaging: bool = False

    def calm(self) -> None:
        """Nothing happens to messages from now on."""
        self.drop = self.repeat = self.reorder = self.flip = 0.0


class Path:
    """The network between a client's machine and the daemon's."""

    def __init__(self, clock: EventClock, noise: Noise) -> None:
        self.clock = clock
        self.noise = noise
        self.parted = False
        self._channels: dict[int, Channel[Any]] = {}
        self._ends: dict[int, Callable[[], None]] = {}
        self._number = 0

    def delay(self) -> float:
        """The delay of the next message."""
        return min(self.clock.random.expovariate(1 / self.noise.latency), _LONGEST_DELAY)

    def chance(self, share: float) -> bool:
        """Whether an event of this probability happens now."""
        return share > 0 and self.clock.random.random() < share

    def damaged(self, frames: Frames) -> Frames:
        """The frames as they arrive, rarely with a flipped bit."""
        if not self.chance(self.noise.flip):
            return frames
        which = self.clock.random.choice([n for n, frame in enumerate(frames) if frame])
        changed = bytearray(frames[which])
        changed[self.clock.random.randrange(len(changed))] ^= 1 << self.clock.random.randrange(8)
        return [*frames[:which], bytes(changed), *frames[which + 1 :]]

    def part(self) -> None:
        """Begin a partition: nothing arrives from now on."""
        self.parted = True

    def heal(self) -> None:
        """End a partition: messages in flight arrive."""
        self.parted = False
        for channel in [*self._channels.values()]:
            channel.move()

    def break_connections(self) -> None:
        """End all connections."""
        for end in [*self._ends.values()]:
            end()

    def open(self, channel: Channel[Any]) -> int:
        """Register a channel; returns its number."""
        self._number += 1
        self._channels[self._number] = channel
        return self._number

    def connect(self, end: Callable[[], None]) -> int:
        """Register a connection, with a function that ends it; returns its number."""
        self._number += 1
        self._ends[self._number] = end
        return self._number

    def close(self, number: int) -> None:
        """Remove a channel or connection that has ended."""
        self._channels.pop(number, None)
        self._ends.pop(number, None)


class Channel(Generic[T]):
    """Carries messages to a process, in order, each after a delay."""

    def __init__(self, path: Path, receiver: Process, deliver: Callable[[T], None]) -> None:
        self.waiting: deque[tuple[float, T]] = deque()
        self._path = path
        self._receiver = receiver
        self._deliver = deliver
        self._last = 0.0
        self._number = path.open(self)

    def send(self, thing: T, *, overtakes: bool = False) -> None:
        """Send a message; it may overtake the last one in flight."""
        ready = max(self._last, self._path.clock.now + self._path.delay())
        self._last = ready
        if overtakes and self.waiting:
            _, before = self.waiting.pop()
            self.waiting.append((ready, thing))
            self.waiting.append((ready, before))
        else:
            self.waiting.append((ready, thing))
        self._receiver.at(ready, self.move)

    def move(self) -> None:
        """Deliver what has arrived, if possible."""
        while self.waiting and self.waiting[0][0] <= self._path.clock.now and not self._path.parted:
            if not self._receiver.alive:
                self.waiting.clear()
            elif self._receiver.stalled_until > self._path.clock.now:
                self._receiver.at(self._receiver.stalled_until, self.move)
                return
            else:
                self._deliver(self.waiting.popleft()[1])

    def end(self, keep: int) -> None:
        """Accept nothing more, and deliver only the first ``keep`` messages in flight."""
        while len(self.waiting) > keep:
            self.waiting.pop()
        self._path.close(self._number)
        # nothing else delivers these after a partition
        if self._path.parted:
            self.waiting.clear()


class Endpoint:
    """An address; ``knock`` is called if a client wants to connect and nobody serves there."""

    def __init__(self) -> None:
        self.server: Router | None = None
        self.knock: Callable[[], None] = lambda: None


class Router:
    """A server's socket. wake: called when a message, with its route, has come into ``inbox``.

    life: the number of the daemon's start. room: messages that may wait for one client.
    """

    def __init__(
        self,
        process: Process,
        endpoint: Endpoint,
        wake: Callable[[], None],
        *,
        life: int,
        room: int = _ROOM,
    ) -> None:
        self.process = process
        self.inbox: deque[tuple[bytes, Frames]] = deque()
        self.connections: dict[bytes, Link] = {}
        self.wake = wake
        self.life = life
        self.room = room
        self._endpoint = endpoint
        self._routes = 0
        endpoint.server = self
        process.at_end.append(self.close)

    def next_route(self) -> bytes:
        """An unused route."""
        self._routes += 1
        return b"%d.%d" % (self.life, self._routes)

    def send(self, route: bytes, frames: Sequence[Buffer]) -> HandedOver:
        """Send to a client, without waiting."""
        connection = self.connections.get(route)
        if connection is None:
            return HandedOver.GONE
        if connection.held >= self.room:
            return HandedOver.FULL
        connection.down.send([bytes(frame) for frame in frames])
        return HandedOver.SENT

    def close(self) -> None:
        """End all connections."""
        if self._endpoint.server is self:
            self._endpoint.server = None
        for connection in [*self.connections.values()]:
            connection.end()


class Dealer:
    """A client's socket, which reconnects. inbox: messages with the life of their sender.

    immediate: whether nothing is queued without a connection. wake: as in Router.
    """

    def __init__(
        self,
        process: Process,
        path: Path,
        endpoint: Endpoint,
        wake: Callable[[], None],
        *,
        immediate: bool,
    ) -> None:
        self.process = process
        self.path = path
        self.inbox: deque[tuple[int, Frames]] = deque()
        self.connection: Link | None = None
        self.wake = wake
        self._endpoint = endpoint
        self._immediate = immediate
        self._queued: deque[Frames] = deque()
        self._interval = _RECONNECT
        self._closed = False
        process.at_end.append(self.close)
        self._try()

    def send(self, frames: Sequence[Buffer]) -> bool:
        """Send, without waiting; returns whether there was room."""
        message = [bytes(frame) for frame in frames]
        if self.connection is not None:
            if len(self.connection.up.waiting) >= _ROOM:
                return False
            self.connection.up.send(message)
        elif self._immediate or len(self._queued) >= _ROOM:
            return False
        else:
            self._queued.append(message)
        return True

    def close(self) -> None:
        """End the connection for good."""
        self._closed = True
        if self.connection is not None:
            self.connection.end()

    def lost(self) -> None:
        """The connection has ended."""
        self.connection = None
        if not self._closed:
            self._interval = _RECONNECT
            self.process.after(self._interval, self._try)

    def _try(self) -> None:
        server = self._endpoint.server
        if self._closed:
            return
        if server is None:
            self._endpoint.knock()
        if server is None or self.path.parted:
            self._interval = min(2 * self._interval, _RECONNECT_AT_MOST)
            self.process.after(self._interval, self._try)
            return
        self.connection = Link(self, server)
        while self._queued:
            self.connection.up.send(self._queued.popleft())
        self.wake()


class Link:
    """A connection between a DEALER and a ROUTER, which knows it by its ``route``."""

    def __init__(self, dealer: Dealer, router: Router) -> None:
        self.route = router.next_route()
        self._dealer = dealer
        self._router = router
        self.up: Channel[Frames] = Channel(dealer.path, router.process, self._to_router)
        self.down: Channel[Frames] = Channel(dealer.path, dealer.process, self._to_dealer)
        router.connections[self.route] = self
        self._number = dealer.path.connect(self.end)

    @property
    def held(self) -> int:
        """Messages that the client has not received."""
        return len(self.down.waiting) + len(self._dealer.inbox)

    def end(self) -> None:
        """End it; some messages in flight still arrive."""
        if self._router.connections.pop(self.route, None) is not self:
            return
        for channel in (self.up, self.down):
            channel.end(self._dealer.path.clock.random.randint(0, len(channel.waiting)))
        self._dealer.path.close(self._number)
        self._dealer.lost()

    def _to_router(self, frames: Frames) -> None:
        self._router.inbox.append((self.route, self._dealer.path.damaged(frames)))
        self._router.wake()

    def _to_dealer(self, frames: Frames) -> None:
        self._dealer.inbox.append((self._router.life, self._dealer.path.damaged(frames)))
        self._dealer.wake()


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
