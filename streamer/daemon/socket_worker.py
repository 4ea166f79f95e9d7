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
        self.key = f"{name}.endpoint"
        self.endpoint: str = getattr(status.config, name).endpoint
        self.listener: Listener | None = None
        self._status = status
        self._context = context

    def bind(self, kind: int, options: dict[int, int]) -> zmq.Socket[bytes]:
        """Make the socket with these options and bind it; ``endpoint`` is then the real address."""
        listener = self.listen()
        socket = self._context.socket(kind)
        # set now, not at close: for a peer that left earlier, the value at that time counts, by
        # default to wait as long as a message is queued, and the context would never terminate
        socket.setsockopt(zmq.LINGER, _LINGER_MILLISECONDS)
        try:
            for option, value in options.items():
                socket.setsockopt(option, value)
            if self.gate is not None:
                demand(socket, self.gate.server.secret, self.name)
            if is_ipv6(self.endpoint):
                socket.setsockopt(zmq.IPV6, 1)
            socket.setsockopt(zmq.USE_FD, listener.dup_fd())
            socket.bind(self.endpoint)
            if self.gate is not None:
                # before a message is received
                self.gate.test(self.name, self.endpoint)
        except BaseException:
            listener.remove()
            socket.close(linger=0)
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

    def listen(self) -> Listener:
        """Claim the endpoint and listen there; sets ``listener`` and ``endpoint``."""
        claim(self.key, self.endpoint)
        path = socket_path(self.endpoint)
        if path is not None and parked_path(path).exists() and not parked_path(path).is_socket():
            raise EndpointError(
                self.key, f"ipc://{parked_path(path)}", "a file that is not a socket is in the way"
            )
        try:
            self.listener = listener = Listener(self.endpoint)
        except OSError as error:
            taken = error.errno == errno.EADDRINUSE
            why = in_use(self.endpoint) if taken else str(error.strerror).lower()
            raise EndpointError(self.key, self.endpoint, why) from None
        self.endpoint = listener.endpoint
        return listener
