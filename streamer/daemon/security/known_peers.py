"""Which connection of a socket has which key, and the end of those whose key was removed.

libzmq asks the gatekeeper once for each connection. Afterwards each message comes with the key of
its sender and the descriptor of its connection, and a connection is ended through that descriptor.
A connection that has sent nothing is not known here, but nothing is received from it or sent to it.
"""

from __future__ import annotations

import contextlib
import os
from socket import SHUT_RDWR, SO_ACCEPTCONN, SOL_SOCKET
from socket import socket as stream_socket
from typing import TYPE_CHECKING, NamedTuple

import zmq

from streamer.daemon.core.rights import EVERYTHING, Rights
from streamer.protocol.transport.curve import Sender, descriptor_of, sender_of
from streamer.protocol.wire import Reason, WireError

if TYPE_CHECKING:
    from streamer.daemon.security.gatekeeper import Gatekeeper

ENDED = -1
"""Stands for the descriptor or inode of a connection that has ended."""


def inode(descriptor: int) -> int:
    """The inode, which identifies a connection; its descriptor may soon belong to another one."""
    try:
        return os.fstat(descriptor).st_ino
    except OSError:
        return ENDED


def end(descriptor: int) -> None:
    """End a connection; libzmq then frees all memory of it."""
    with contextlib.suppress(OSError):
        own = os.dup(descriptor)
        try:
            connection = stream_socket(fileno=own)
        except OSError:
            # the descriptor now belongs to a file
            os.close(own)
            return
        with connection:
            # shutting down a listening socket would shut everybody out
            if not connection.getsockopt(SOL_SOCKET, SO_ACCEPTCONN):
                connection.shutdown(SHUT_RDWR)


_SWEEP_SECONDS = 1.0


class _Peer(NamedTuple):
    """A connection, by its inode, and the rights that it was admitted with."""

    connection: int
    descriptor: int
    rights: Rights


class KnownPeers:
    """The connections of the socket ``domain``; without a gatekeeper everybody may do everything.

    strict: a connection ends with every change of its rights, not only when it loses all of them.
    """

    def __init__(self, gate: Gatekeeper | None, domain: str, *, strict: bool = False) -> None:
        self._gate = gate
        self._domain = domain
        self._strict = strict
        # by the route of messages to it, or by whatever else names it
        self._peers: dict[bytes, _Peer] = {}
        self._version = 0 if gate is None else gate.version
        self._swept = 0.0
        # the key of each connection
        self._keys: dict[int, str] = {}
        # routes of an ended connection that now belong to another one
        self._replaced: list[bytes] = []
        # excess connections, to be ended once they have read the refusal
        self._doomed: list[tuple[int, int]] = []

    @property
    def guarded(self) -> bool:
        """Whether the socket needs keys."""
        return self._gate is not None

    def sender(self, frame: zmq.Frame) -> Sender:
        """The sender of a message."""
        return sender_of(frame) if self.guarded else Sender("", descriptor_of(frame))

    def rights(self, route: bytes, sender: Sender) -> Rights | None:
        """The rights of a message's sender; None if its key was removed: its connection then ends.

        WireError if its key has too many connections.
        """
        if self._gate is None:
            return EVERYTHING
        rights = self._gate.rights(sender.user, self._domain)
        if rights is None:
            end(sender.descriptor)
            return None
        connection = inode(sender.descriptor)
        if connection != ENDED and self._keys.setdefault(connection, sender.user) != sender.user:
            # a message may outlive its connection, whose descriptor another one then has. But a
            # connection has only one key, so one of the two seen is not its own
            end(sender.descriptor)
            return None
        known = self._peers.get(route)
        if connection == ENDED or (known is not None and known.connection == connection):
            return rights
        if known is not None:
            self._replaced.append(route)
            del self._peers[route]
        self._check_number(rights, sender.descriptor, connection)
        self._peers[route] = _Peer(connection, sender.descriptor, rights)
        return rights

    def replaced(self) -> list[bytes]:
        """Routes that have passed to another connection since the last call.

        A client chooses its routing id, perhaps that of a client that has gone: it must not get the
        answers to the earlier client's requests.
        """
        replaced, self._replaced = self._replaced, []
        return replaced

    def reached(self, route: bytes) -> Rights | None:
        """The rights of the client that the route now leads to, None if it may get nothing."""
        if self._gate is None:
            return EVERYTHING
        peer = self._peers.get(route)
        if peer is None or inode(peer.descriptor) != peer.connection:
            return None
        return self._gate.rights(peer.rights.key, self._domain)

    def sweep(self, now: float) -> list[bytes]:
        """Forget ended connections and end those whose key was removed; returns their routes.

        now: monotonic seconds. Call it often.
        """
        if self._gate is None:
            return []
        changed = self._gate.version != self._version
        if not changed and now - self._swept < _SWEEP_SECONDS:
            return []
        self._swept, self._version = now, self._gate.version
        for descriptor, connection in self._doomed:
            if inode(descriptor) == connection:
                end(descriptor)
        self._doomed.clear()
        self._replaced.clear()
        gone = [route for route, peer in self._peers.items() if not self._stays(peer)]
        for route in gone:
            del self._peers[route]
        self._keys = {peer.connection: peer.rights.key for peer in self._peers.values()}
        return gone

    def _stays(self, peer: _Peer) -> bool:
        assert self._gate is not None
        if inode(peer.descriptor) != peer.connection:
            return False
        rights = self._gate.rights(peer.rights.key, self._domain)
        if rights is None or (self._strict and rights != peer.rights):
            end(peer.descriptor)
            return False
        return True

    def _check_number(self, rights: Rights, descriptor: int, connection: int) -> None:
        most = rights.limits.connections
        if not most:
            return
        others = {
            peer.connection
            for peer in self._peers.values()
            if peer.rights.key == rights.key and inode(peer.descriptor) == peer.connection
        }
        if len(others - {connection}) >= most:
            self._doomed.append((descriptor, connection))
            raise WireError(
                Reason.DENIED, f"the key '{rights.name}' has {most} connections already, its limit"
            )
