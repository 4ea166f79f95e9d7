"""The subscriptions of a feed: each takes effect only once it is known to be allowed.

The socket is "manual": libzmq applies what it is told to, for the connection whose subscription was
received last. So this process knows what each connection receives, before it receives anything.

This holds only as long as every message received is a subscription. libzmq (xpub.cpp of 4.3.5)
queues a connection for each subscription, but dequeues one with every message. After any other
message, a subscription would be applied for the connection of a later one, perhaps with another
key. So nothing is applied then until the queue is empty, and clients that ask meanwhile must ask
again.
"""

from collections import Counter

import zmq

from streamer.daemon.core.feed import Subscriptions
from streamer.daemon.security.known_peers import ENDED, KnownPeers, end, inode
from streamer.protocol.header import WireError
from streamer.protocol.payloads import DENIED_TOPIC

OPTIONS: dict[int, int] = {zmq.XPUB_MANUAL: 1}
"""Options of the socket, set before it is bound."""

MAX_SUBSCRIPTION = 64
"""In bytes; a longer subscription ends the connection, because libzmq stores every subscription in
a tree that takes 50 bytes for each of its bytes."""

MAX_MESSAGES = 256
"""How many messages a connection may send in a second: libzmq queues them without a limit."""

_SWEEP_SECONDS = 1.0
_DENIED = DENIED_TOPIC.encode()


class GuardedSubscriptions:
    """Applies the allowed subscriptions of a feed's connections; ``held`` has those in effect.

    descriptors: of each connection that has sent a message, by its inode.
    """

    def __init__(self, peers: KnownPeers, held: Subscriptions) -> None:
        self.descriptors: dict[int, int] = {}
        self._peers = peers
        self._held = held
        # by connection: its messages of this second
        self._messages = Counter[int]()
        self._swept = 0.0
        # whether a connection has ended since
        self._ended = False
        # whether libzmq would apply a subscription for the wrong connection
        self._shifted = False

    def caught_up(self) -> None:
        """No message is left to be received."""
        self._shifted = False

    def obey(self, socket: zmq.Socket[bytes], frame: zmq.Frame) -> bool:
        """Apply a received subscription or its end; returns whether the connection may stay."""
        sender, message = self._peers.sender(frame), frame.bytes
        begins, prefix = message[:1] == b"\x01", message[1:]
        if message[:1] not in (b"\x00", b"\x01"):
            self._shifted = True
            return False
        connection = inode(sender.descriptor)
        if connection == ENDED:
            self._ended = True
            return True
        self.descriptors[connection] = sender.descriptor
        self._messages[connection] += 1
        if len(message) > MAX_SUBSCRIPTION or self._messages[connection] > MAX_MESSAGES:
            return False
        if self._shifted:
            end(sender.descriptor)
            return True
        before = self._held.topics_of(connection)
        if not begins:
            self._held.remove(prefix, connection)
            for topic in before - self._held.topics_of(connection):
                socket.setsockopt_string(zmq.UNSUBSCRIBE, topic)
            return True
        try:
            rights = self._peers.rights(str(connection).encode(), sender)
        except WireError as error:
            rights = None
            self._held.deny(prefix.decode("ascii", "replace"), connection, sender.user, str(error))
        if prefix == _DENIED:
            # subscribe to the denials for this key only
            socket.setsockopt(zmq.SUBSCRIBE, prefix + sender.user.encode())
            return True
        stays = rights is None or self._held.add(prefix, connection, rights)
        # not the prefix itself: the prefix of all topics also matches denials for other keys
        for topic in self._held.topics_of(connection) - before:
            socket.setsockopt_string(zmq.SUBSCRIBE, topic)
        return stays

    def sweep(self, now: float) -> bool:
        """Remove subscriptions of connections that ended or lost rights; returns if any did."""
        gone = [int(route) for route in self._peers.sweep(now)]
        if now - self._swept >= _SWEEP_SECONDS:
            self._swept, self._ended = now, True
            self._messages.clear()
        if self._ended:
            self._ended = False
            gone += [one for one, where in self.descriptors.items() if inode(where) != one]
        for connection in gone:
            self.descriptors.pop(connection, None)
            self._held.leave(connection)
        return bool(gone)
