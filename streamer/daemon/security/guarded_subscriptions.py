"""The subscriptions of a feed with keys: each takes effect only once it is known to be allowed.

Without keys libzmq applies a subscription itself, and a message may follow before this process
learns of it. Here the socket is "manual": libzmq applies what it is told to, for the connection
whose subscription was received last.

This holds only as long as every message received is a subscription. libzmq (xpub.cpp of 4.3.5)
queues a connection for each subscription, but dequeues one with every message. After any other
message, a subscription would be applied for the connection of a later one, with another key. So
nothing is applied then until the queue is empty, and clients that ask meanwhile must ask again.
"""

from __future__ import annotations

import zmq

from streamer.daemon.core.feed import Subscriptions
from streamer.daemon.open_connections import ENDED, end, inode
from streamer.daemon.security.known_peers import KnownPeers
from streamer.protocol.feed_messages import DENIED_TOPIC
from streamer.protocol.header import WireError
from streamer.protocol.transport.curve import HANDSHAKE_BYTES, NOBODY, sender_of

OPTIONS: dict[int, int] = {zmq.XPUB_MANUAL: 1, zmq.MAXMSGSIZE: HANDSHAKE_BYTES}
"""Options of the socket, set before it is bound."""

MAX_SUBSCRIPTION = 64
"""In bytes; a longer subscription ends the connection."""

_DENIED = DENIED_TOPIC.encode()


class GuardedSubscriptions:
    """Applies the allowed subscriptions of a feed's connections; ``held`` has those in effect."""

    def __init__(self, peers: KnownPeers, held: Subscriptions) -> None:
        self._peers = peers
        self._held = held
        # by connection, for those that were denied something
        self._denied: dict[int, int] = {}
        # whether libzmq would apply a subscription for the wrong connection
        self._shifted = False

    def caught_up(self) -> None:
        """No message is left to be received."""
        self._shifted = False

    def obey(self, socket: zmq.Socket[bytes], frame: zmq.Frame) -> bool:
        """Apply a received subscription or its end; returns whether the connection may stay."""
        sender, message = sender_of(frame), frame.bytes
        begins, prefix = message[:1] == b"\x01", message[1:]
        if message[:1] not in (b"\x00", b"\x01"):
            self._shifted = True
            return False
        if sender == NOBODY:
            # the connection has ended: sweep removes all its subscriptions
            return True
        connection = inode(sender.descriptor)
        if connection == ENDED:
            return True
        if len(message) > MAX_SUBSCRIPTION:
            return False
        if self._shifted:
            end(sender.descriptor)
            return True
        before = self._held.topics_of(connection)
        if not begins:
            self._held.remove_of(prefix, connection)
            for topic in before - self._held.topics_of(connection):
                socket.setsockopt_string(zmq.UNSUBSCRIBE, topic)
            return True
        try:
            rights = self._peers.rights(str(connection).encode(), sender)
        except WireError as error:
            rights = None
            self._denied[connection] = sender.descriptor
            self._held.deny(prefix.decode("ascii", "replace"), connection, sender.user, str(error))
        if prefix == _DENIED:
            # subscribe to the denials for this key only
            socket.setsockopt(zmq.SUBSCRIBE, prefix + sender.user.encode())
            return True
        verdict = "leave" if rights is None else self._held.add_of(prefix, connection, rights)
        if connection in self._held.denied:
            self._denied[connection] = sender.descriptor
        # not the prefix itself: the prefix of all topics also matches denials for other keys
        for topic in self._held.topics_of(connection) - before:
            socket.setsockopt_string(zmq.SUBSCRIBE, topic)
        return verdict != "end"

    def sweep(self, now: float) -> bool:
        """Remove subscriptions of connections that ended or lost rights; returns if any did."""
        gone = [int(route) for route in self._peers.sweep(now)]
        gone += [one for one, where in self._denied.items() if inode(where) != one]
        for connection in gone:
            self._denied.pop(connection, None)
            self._held.leave(connection)
        return bool(gone)
