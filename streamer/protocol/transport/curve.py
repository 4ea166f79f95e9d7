"""CURVE on a socket: the keys of both sides, and the sender of a message.

Follows a client's handshakes, since otherwise a refusal looks like silence.
"""

from enum import Enum
from typing import NamedTuple

import zmq
from zmq.utils import z85
from zmq.utils.monitor import recv_monitor_message

from streamer.protocol.keys import ClientKeys, KeyPair

USER = "User-Id"
"""The property of a message with its sender's key, as the authenticator set it."""

OVERHEAD_BYTES = 64
"""The most that encryption adds to a frame; ``MAXMSGSIZE`` counts it."""

HANDSHAKE_BYTES = 1024
"""The largest message of a handshake."""


class Sender(NamedTuple):
    """The sender of a message: its public key, and the descriptor of its connection.

    Without CURVE the key is empty. The descriptor is -1 if libzmq knows that the connection has
    ended; if it ended after its message came, the descriptor may belong to another one by now.
    """

    user: str
    descriptor: int


NOBODY = Sender("", -1)


def new_pair() -> KeyPair:
    """A new key pair, from the system's random numbers."""
    public, secret = zmq.curve_keypair()
    return KeyPair(public.decode(), secret.decode())


def key_of(raw: bytes) -> str:
    """A public key of 32 bytes as text."""
    return z85.encode(raw).decode()


def connect_with(socket: zmq.Socket[bytes], keys: ClientKeys) -> None:
    """Have a client's socket, before it connects, present its key and require the daemon's."""
    socket.setsockopt_string(zmq.CURVE_PUBLICKEY, keys.public)
    socket.setsockopt_string(zmq.CURVE_SECRETKEY, keys.secret)
    socket.setsockopt_string(zmq.CURVE_SERVERKEY, keys.server)


def demand(socket: zmq.Socket[bytes], secret: str, domain: str) -> None:
    """Have a server's socket, before it is bound, admit only keys that the authenticator knows.

    Without a domain and its enforcement, libzmq admits any key if there is no authenticator; with
    enforcement alone, it does so even if there is one.
    """
    socket.setsockopt(zmq.CURVE_SERVER, 1)
    socket.setsockopt_string(zmq.CURVE_SECRETKEY, secret)
    socket.setsockopt_string(zmq.ZAP_DOMAIN, domain)
    socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)


def sender_of(frame: zmq.Frame) -> Sender:
    """The sender of a message, from any of its frames."""
    try:
        return Sender(str(frame.get(USER)), int(frame.get(zmq.SRCFD)))
    except zmq.ZMQError:
        return NOBODY


def descriptor_of(frame: zmq.Frame) -> int:
    """The descriptor of a message's connection, -1 if it has ended; also without CURVE."""
    try:
        return int(frame.get(zmq.SRCFD))
    except zmq.ZMQError:
        return NOBODY.descriptor


def receive_signed(socket: zmq.Socket[bytes], *, signed: bool) -> tuple[Sender, list[bytes]]:
    """Receive a message, with its sender if ``signed``; zmq.Again if there is none."""
    if not signed:
        return NOBODY, socket.recv_multipart(zmq.NOBLOCK)
    frames = socket.recv_multipart(zmq.NOBLOCK, copy=False)
    return sender_of(frames[0]), [frame.bytes for frame in frames]


_EVENTS = (
    zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
)
# a single one may fail because the other side ends just then
_BROKEN = 3


class Handshake(Enum):
    """How handshakes ended: admitted; the key was refused; one side has keys and the other has
    none; or they fail repeatedly, for example because the server has another key.
    """

    ADMITTED = "admitted"
    REFUSED = "refused"
    MISMATCH = "mismatch"
    BROKEN = "broken"


class Handshakes:
    """Follows the handshakes of a socket; make it before the socket connects.

    monitor: a socket that is readable when there is something new.
    """

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        self._socket = socket
        self._broken = 0
        self.monitor = socket.get_monitor_socket(_EVENTS)

    def take(self) -> Handshake | None:
        """How the last handshake ended, None if there is nothing new."""
        outcome = None
        while self.monitor.poll(0):
            event = recv_monitor_message(self.monitor)
            outcome = self._outcome(event["event"], event["value"])
            if outcome in (Handshake.REFUSED, Handshake.MISMATCH):
                break
        return outcome

    def _outcome(self, event: int, value: int) -> Handshake | None:
        if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._broken = 0
            return Handshake.ADMITTED
        if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
            return Handshake.REFUSED
        if value == zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH:
            return Handshake.MISMATCH
        self._broken += 1
        return Handshake.BROKEN if self._broken >= _BROKEN else None

    def close(self) -> None:
        """Stop following; call this before the socket is closed."""
        self._socket.disable_monitor()
        self.monitor.close(linger=0)
