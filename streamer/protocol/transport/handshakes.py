"""Follows a client's handshakes, since otherwise a refusal looks like silence."""

from __future__ import annotations

from enum import Enum

import zmq
from zmq.utils.monitor import recv_monitor_message

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
