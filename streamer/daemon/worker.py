"""A thread of the daemon: what ends it early is kept and brings the daemon down, never a hang."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from typing import Any

import zmq

from streamer.daemon.door import Door, aside
from streamer.daemon.mailbox import Mailbox
from streamer.protocol.endpoints import EndpointError, claim, socket_path

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
        self.door: Door | None = None
        self._context = context

    def bind(self, kind: int, options: dict[int, int]) -> zmq.Socket[bytes]:
        """The socket, with its options, bound; ``endpoint`` then holds the real address."""
        claim(self.key, self.endpoint)
        path = socket_path(self.endpoint)
        if path is not None and aside(path).exists() and not aside(path).is_socket():
            problem = "a file that is no socket is in the way"
            raise EndpointError(self.key, f"ipc://{aside(path)}", problem)
        self.door = self._open_door()
        self.endpoint = self.door.endpoint
        socket = self._context.socket(kind)
        # now, not when it is closed: a peer that goes before has its connection ended with what is
        # set then, by default for as long as a message waits for it, and the context never ends
        socket.setsockopt(zmq.LINGER, _LINGER_MILLISECONDS)
        try:
            for option, value in options.items():
                socket.setsockopt(option, value)
            if self.endpoint.startswith("tcp://["):
                socket.setsockopt(zmq.IPV6, 1)
            socket.setsockopt(zmq.USE_FD, self.door.lend())
            socket.bind(self.endpoint)
        except BaseException:
            self.door.remove()
            socket.close(linger=0)
            raise
        self.ready.set()
        return socket

    def release(self, socket: zmq.Socket[bytes]) -> None:
        """Close the socket, giving what is on its way a second, and remove its file."""
        if self.door is not None:
            self.door.remove()
        socket.close()

    def _open_door(self) -> Door:
        try:
            return Door(self.endpoint)
        except OSError as error:
            in_use = error.errno == errno.EADDRINUSE
            problem = "endpoint in use (is another daemon running?)" if in_use else error.strerror
            raise EndpointError(self.key, self.endpoint, str(problem).lower()) from None


class InboxWorker(SocketWorker):
    """A socket worker that is also woken by a mailbox."""

    def poller(self, socket: zmq.Socket[bytes], inbox: Mailbox[Any]) -> zmq.Poller:
        """A poller over the socket and the inbox."""
        poller = zmq.Poller()
        poller.register(socket, zmq.POLLIN)
        poller.register(inbox.fileno(), zmq.POLLIN)
        return poller
