"""A worker with one bound socket: listening, keys of clients, and the end of the socket."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import zmq

from streamer.daemon.listener import Listener, parked_path
from streamer.protocol.endpoints import EndpointError, claim, in_use, is_ipv6, socket_path
from streamer.protocol.transport.curve import demand

if TYPE_CHECKING:
    from streamer.daemon.daemon_status import DaemonStatus
    from streamer.daemon.security.gatekeeper import Gatekeeper

from streamer.daemon.worker import Mailbox, Worker

# for messages in flight when a socket is closed
_LINGER_MILLISECONDS = 1000


def listen(key: str, endpoint: str) -> Listener:
    """Claim the endpoint, the value of ``key``, and listen there; EndpointError if that fails."""
    claim(key, endpoint)
    path = socket_path(endpoint)
    if path is not None and parked_path(path).exists() and not parked_path(path).is_socket():
        problem = "a file that is not a socket is in the way"
        raise EndpointError(key, f"ipc://{parked_path(path)}", problem)
    try:
        return Listener(endpoint)
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        why = in_use(endpoint) if taken else str(error.strerror).lower()
        raise EndpointError(key, endpoint, why) from None


def bind(
    context: zmq.Context[zmq.Socket[bytes]],
    kind: int,
    options: dict[int, int],
    listener: Listener,
    name: str,
    gate: Gatekeeper | None,
) -> zmq.Socket[bytes]:
    """Make a socket with these options, which accepts what comes to the listener.

    name: of the socket, for the keys. gate: as in ``SocketWorker``.
    """
    socket = context.socket(kind)
    # set now, not at close: for a peer that left earlier, the value at that time counts, by default
    # to wait as long as a message is queued, and the context would never terminate
    socket.setsockopt(zmq.LINGER, _LINGER_MILLISECONDS)
    try:
        for option, value in options.items():
            socket.setsockopt(option, value)
        if gate is not None:
            demand(socket, gate.server.secret, name)
        if is_ipv6(listener.endpoint):
            socket.setsockopt(zmq.IPV6, 1)
        socket.setsockopt(zmq.USE_FD, listener.dup_fd())
        socket.bind(listener.endpoint)
        if gate is not None:
            # before a message is received
            gate.test(name, listener.endpoint)
    except BaseException:
        socket.close(linger=0)
        raise
    return socket


class SocketWorker(Worker):
    """A worker with one bound socket; ``name`` is also its table of the configuration.

    gate: admits clients; None admits everybody.
    """

    def __init__(
        self,
        name: str,
        status: DaemonStatus,
        context: zmq.Context[zmq.Socket[bytes]],
        notify: Callable[[], None],
        gate: Gatekeeper | None = None,
    ) -> None:
        super().__init__(name, notify)
        self.gate = gate
        self.endpoint: str = getattr(status.config, name).endpoint
        self.listener: Listener | None = None
        self._status = status
        self._zmq = context

    def bind(self, kind: int, options: dict[int, int]) -> zmq.Socket[bytes]:
        """Make the socket with these options and bind it; ``endpoint`` is then the real address."""
        self.listener = listener = listen(f"{self.name}.endpoint", self.endpoint)
        self.endpoint = listener.endpoint
        try:
            socket = bind(self._zmq, kind, options, listener, self.name, self.gate)
        except BaseException:
            listener.remove()
            raise
        self.ready.set()
        return socket

    def poller(self, socket: zmq.Socket[bytes], inbox: Mailbox[Any]) -> zmq.Poller:
        """A poller over the socket and an inbox."""
        poller = zmq.Poller()
        poller.register(socket, zmq.POLLIN)
        poller.register(inbox.fileno(), zmq.POLLIN)
        return poller

    def release(self, socket: zmq.Socket[bytes]) -> None:
        """Close the socket, give messages in flight a second, and remove its file."""
        if self.listener is not None:
            self.listener.remove()
        socket.close(linger=_LINGER_MILLISECONDS)
