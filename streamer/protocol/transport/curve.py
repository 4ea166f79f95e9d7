"""CURVE on a socket: keys of both sides, and who sent a message."""

from __future__ import annotations

from typing import NamedTuple

import zmq
from zmq.utils import z85

from streamer.protocol.keys import ClientKeys, KeyPair

USER = "User-Id"
"""The property of a message that names the key of its sender, as the authenticator said."""

OVERHEAD_BYTES = 64
"""What encryption adds to a frame, at most; ``MAXMSGSIZE`` counts it."""

HANDSHAKE_BYTES = 1024
"""The messages of a handshake are not larger."""


class Sender(NamedTuple):
    """Where a message came from: the public key, and the descriptor of the connection.

    Without CURVE the key is empty. Of a connection that has ended the descriptor is -1, if libzmq
    said so itself; of one that ended after its message came it may belong to another one by now.
    """

    user: str
    descriptor: int


NOBODY = Sender("", -1)


def new_pair() -> KeyPair:
    """A new key, from the random numbers of the system."""
    public, secret = zmq.curve_keypair()
    return KeyPair(public.decode(), secret.decode())


def public_of(secret: str) -> str:
    """The public key of a pair."""
    return zmq.curve_public(secret.encode()).decode()


def key_of(raw: bytes) -> str:
    """A public key of 32 bytes as text."""
    return z85.encode(raw).decode()


def connect_with(socket: zmq.Socket[bytes], keys: ClientKeys) -> None:
    """Have a client's socket, not connected yet, show and demand keys."""
    socket.setsockopt_string(zmq.CURVE_PUBLICKEY, keys.public)
    socket.setsockopt_string(zmq.CURVE_SECRETKEY, keys.secret)
    socket.setsockopt_string(zmq.CURVE_SERVERKEY, keys.server)


def demand(socket: zmq.Socket[bytes], secret: str, domain: str) -> None:
    """Have a server's socket, not bound yet, admit only keys that the authenticator knows.

    Without the domain and its enforcement libzmq admits any key if there is no authenticator, and
    with enforcement alone even beside one.
    """
    socket.setsockopt(zmq.CURVE_SERVER, 1)
    socket.setsockopt_string(zmq.CURVE_SECRETKEY, secret)
    socket.setsockopt_string(zmq.ZAP_DOMAIN, domain)
    socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)


def sender_of(frame: zmq.Frame) -> Sender:
    """Who sent a message, from any of its frames."""
    try:
        return Sender(str(frame.get(USER)), int(frame.get(zmq.SRCFD)))
    except zmq.ZMQError:
        return NOBODY


def descriptor_of(frame: zmq.Frame) -> int:
    """The connection that a message came from, -1 if it has ended; also without CURVE."""
    try:
        return int(frame.get(zmq.SRCFD))
    except zmq.ZMQError:
        return NOBODY.descriptor


def receive_signed(socket: zmq.Socket[bytes], *, signed: bool) -> tuple[Sender, list[bytes]]:
    """A message that has come, and its sender if it is signed; zmq.Again if there is none."""
    if not signed:
        return NOBODY, socket.recv_multipart(zmq.NOBLOCK)
    frames = socket.recv_multipart(zmq.NOBLOCK, copy=False)
    return sender_of(frames[0]), [frame.bytes for frame in frames]
