"""A thread of the daemon: what ends it early is kept and brings the daemon down, never a hang."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import zmq

from streamer.daemon.mailbox import Mailbox
from streamer.endpoints import EndpointError, claim, socket_path

# the longest a thread waits before it looks whether it shall stop
POLL_SECONDS = 0.2
POLL_MILLISECONDS = 200
# messages on their way when a socket is closed
_LINGER_MILLISECONDS = 1000


class Worker(threading.Thread):
    """``work`` runs until ``stopping`` is set; ``inbox`` wakes it."""

    def __init__(self, name: str, ended: Callable[[], None]) -> None:
        super().__init__(name=name, daemon=True)
        self.stopping = threading.Event()
        self.ready = threading.Event()
        self.error: BaseException | None = None
        self._ended = ended

    def work(self) -> None:
        """The body of the thread; it makes, uses and closes its sockets."""
        raise NotImplementedError

    def run(self) -> None:
        """Do the work, keep its error, and tell the service."""
        try:
            self.work()
        except BaseException as error:
            self.error = error
        finally:
            self.ready.set()
            self._ended()

    def stop(self) -> None:
        """Ask the thread to end."""
        self.stopping.set()


class SocketWorker(Worker):
    """A worker with one bound socket and an inbox that wakes its poll."""

    def __init__(
        self,
        name: str,
        endpoint: str,
        context: zmq.Context[zmq.Socket[bytes]],
        ended: Callable[[], None],
    ) -> None:
        super().__init__(name, ended)
        self.key = f"{name}.endpoint"
        self.endpoint = endpoint
        self._context = context

    def bind(self, kind: int, options: dict[int, int]) -> zmq.Socket[bytes]:
        """The socket, with its options, bound; ``endpoint`` then holds the real address."""
        claim(self.key, self.endpoint)
        socket = self._context.socket(kind)
        # now, not when it is closed: a peer that goes before has its connection ended with what is
        # set then, by default for as long as a message waits for it, and the context never ends
        socket.setsockopt(zmq.LINGER, _LINGER_MILLISECONDS)
        try:
            for option, value in options.items():
                socket.setsockopt(option, value)
            if self.endpoint.startswith("tcp://["):
                socket.setsockopt(zmq.IPV6, 1)
            self._bind(socket)
        except BaseException:
            socket.close(linger=0)
            raise
        self.endpoint = socket.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0")
        self.ready.set()
        return socket

    def release(self, socket: zmq.Socket[bytes]) -> None:
        """Close the socket, giving what is on its way a second, and remove its file."""
        path = socket_path(self.endpoint)
        if path is not None:
            path.unlink(missing_ok=True)
        socket.close()

    def _bind(self, socket: zmq.Socket[bytes]) -> None:
        path = socket_path(self.endpoint)
        # workers are started one by one, so that nobody else makes files meanwhile
        mask = os.umask(0o177) if path is not None else None
        try:
            socket.bind(self.endpoint)
        except zmq.ZMQError as error:
            in_use = error.errno == zmq.EADDRINUSE
            problem = "endpoint in use (is another daemon running?)" if in_use else str(error)
            raise EndpointError(self.key, self.endpoint, problem.lower()) from None
        finally:
            if mask is not None:
                os.umask(mask)
        if path is not None:
            path.chmod(0o600)


class InboxWorker(SocketWorker):
    """A socket worker that is also woken by a mailbox."""

    def poller(self, socket: zmq.Socket[bytes], inbox: Mailbox[Any]) -> zmq.Poller:
        """A poller over the socket and the inbox."""
        poller = zmq.Poller()
        poller.register(socket, zmq.POLLIN)
        poller.register(inbox.fileno(), zmq.POLLIN)
        return poller
