"""Listening sockets that can be shut, since a process needs a file descriptor for every connection.

libzmq accepts every connection. Without a free descriptor it aborts the process (ipc) or retries
forever (TCP), and unbinding an endpoint ends its connections, too. So the listening sockets are
made here and lent to libzmq. A shut listener keeps new connections away from libzmq and leaves the
existing ones alone.
"""

import contextlib
import ctypes
import os
import resource
import socket
import struct
import threading
from pathlib import Path

from streamer.daemon.process import spare
from streamer.protocol.endpoints import EndpointError, socket_path, split_http_address

_WAITING = 128
# TCP keep-alive, in seconds: a connection whose peer vanished silently, for example because its
# machine lost power, is ended after two minutes without traffic
_KEEP_ALIVE = {socket.TCP_KEEPIDLE: 60, socket.TCP_KEEPINTVL: 15, socket.TCP_KEEPCNT: 4}

# from Linux, asm-generic/socket.h
_ATTACH_FILTER, _DETACH_FILTER = 26, 27
# one instruction of the classic packet filter, "return 0": drop the packet
_DROP = ctypes.create_string_buffer(struct.pack("=HBBI", 0x06, 0, 0, 0), 8)


class Listener:
    """A listening socket, whose descriptor is lent to libzmq; OSError if it cannot be bound.

    endpoint: ``ipc`` or ``tcp``, with its real port. listening: the socket of a listener that
    another process made and will remove.
    """

    def __init__(self, endpoint: str, listening: socket.socket | None = None) -> None:
        self.endpoint = endpoint
        self.shut = False
        self._path = socket_path(endpoint)
        self._lock = threading.Lock()
        self._removed = False
        # takes the place of a shut Unix-domain socket, so that new connections wait
        self._closed: socket.socket | None = None
        if listening is not None:
            self._socket = listening
            return
        self._socket = _bound(endpoint, self._path)
        if self._path is not None:
            # left behind by a killed daemon
            parked_path(self._path).unlink(missing_ok=True)
        # a connection that waits now still reaches libzmq after the listener is shut
        waiting = max(1, min(_WAITING, spare(resource.getrlimit(resource.RLIMIT_NOFILE)[0]) // 8))
        self._socket.listen(waiting)
        self._socket.setblocking(False)
        if self._path is None:
            port = self._socket.getsockname()[1]
            self.endpoint = f"{endpoint.rpartition(':')[0]}:{port}"

    def fileno(self) -> int:
        """Readable while a connection waits to be accepted."""
        return self._socket.fileno()

    def dup_fd(self) -> int:
        """A descriptor of the socket for libzmq, which will close it."""
        return os.dup(self._socket.fileno())

    def close(self) -> None:
        """Refuse new connections."""
        with self._lock:
            if self._removed or self.shut:
                return
            self.shut = True
            if self._path is None:
                program = struct.pack("HP", 1, ctypes.addressof(_DROP))
                self._socket.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, program)
                return
            # without the file, or without a descriptor for the second socket, nobody can connect
            with contextlib.suppress(OSError):
                os.rename(self._path, parked_path(self._path))
                self._closed = _bound(self.endpoint, self._path)
                self._closed.listen(1)

    def open(self) -> None:
        """Accept connections again."""
        with self._lock:
            if self._removed or not self.shut:
                return
            self.shut = False
            if self._path is None:
                self._socket.setsockopt(socket.SOL_SOCKET, _DETACH_FILTER, 0)
                return
            with contextlib.suppress(OSError):
                os.rename(parked_path(self._path), self._path)
            if self._closed is not None:
                self._closed.close()
                self._closed = None

    def reopen(self) -> None:
        """Accept connections again after the end of another process that had the listener."""
        with self._lock:
            if self._removed:
                return
            with contextlib.suppress(OSError):
                if self._path is None:
                    self._socket.setsockopt(socket.SOL_SOCKET, _DETACH_FILTER, 0)
                elif parked_path(self._path).exists():
                    os.rename(parked_path(self._path), self._path)

    def remove(self) -> None:
        """Close the socket and remove its file."""
        with self._lock:
            self._removed = True
            self._socket.close()
            if self._closed is not None:
                self._closed.close()
            if self._path is not None:
                self._path.unlink(missing_ok=True)
                parked_path(self._path).unlink(missing_ok=True)


def _bound(endpoint: str, path: Path | None) -> socket.socket:
    """A socket bound to an endpoint, not yet listening."""
    if path is None:
        host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
        family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
    else:
        family = socket.AF_UNIX
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        if path is None:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            # accepted connections inherit these options
            made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in _KEEP_ALIVE.items():
                made.setsockopt(socket.IPPROTO_TCP, option, value)
            made.bind((host.strip("[]"), 0 if port == "*" else int(port)))
        else:
            made.bind(str(path))
            path.chmod(0o600)
    except BaseException:
        made.close()
        raise
    return made


def parked_path(path: Path) -> Path:
    """Where the socket file lies while its listener is shut."""
    return path.with_name(path.name + ".full")


def http_socket(key: str, address: str, waiting: int) -> socket.socket:
    """A socket that listens at HOST:PORT, the value of ``key``; EndpointError if it cannot.

    waiting: how many connections may wait to be accepted.
    """
    try:
        addresses = socket.getaddrinfo(*split_http_address(address), type=socket.SOCK_STREAM)
        family, _, _, _, place = addresses[0]
        made = socket.socket(family, socket.SOCK_STREAM)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind(place)
            made.listen(waiting)
        except BaseException:
            made.close()
            raise
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise EndpointError(key, address, why.lower()) from None
    return made
