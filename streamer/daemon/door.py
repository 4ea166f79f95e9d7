"""Listening sockets that can be shut: a process needs a file descriptor for every connection.

libzmq accepts whatever comes. Without a descriptor it aborts the process (ipc) or tries again for
ever (TCP), and to unbind an endpoint ends its connections too. So the listening sockets are made
here and lent to libzmq. A door that is shut keeps new connections away from libzmq and leaves those
that exist alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import socket
import struct
import threading
from pathlib import Path

from streamer.protocol.endpoints import socket_path

# descriptors of the process at which connections are refused, whatever its limit is: each holds
# some tens of kilobytes
_MOST = 1 << 16
# left for those that come before the doors are shut, and for files: most of a small limit, as
# libzmq accepts hundreds while the thread that watches waits for a core
_SPARE = 4096
_WAITING = 128

# of Linux, asm-generic/socket.h
_ATTACH_FILTER, _DETACH_FILTER = 26, 27
# one instruction of the classic packet filter, "return 0": drop
_DROP = ctypes.create_string_buffer(struct.pack("=HBBI", 0x06, 0, 0, 0), 8)


def raise_limit() -> int:
    """Raise the limit of descriptors as far as it goes; how many may be open then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return soft if soft != resource.RLIM_INFINITY else _MOST + _SPARE


def spare(limit: int) -> int:
    """How many descriptors of a limit are not for connections."""
    return max(limit - _MOST, min(limit * 5 // 8, _SPARE))


def open_descriptors() -> int:
    """How many descriptors are open."""
    # Linux before 6.2 tells no size
    return os.stat("/proc/self/fd").st_size or len(os.listdir("/proc/self/fd"))


class Door:
    """A listening socket, whose descriptor is lent to libzmq; OSError if it cannot be bound.

    endpoint: ``ipc`` or ``tcp``, with the port that was found where it was open.
    """

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.shut = False
        self._path = socket_path(endpoint)
        self._lock = threading.Lock()
        self._removed = False
        # in the place of a Unix-domain socket meanwhile: who connects waits
        self._closed: socket.socket | None = None
        self._socket = _bound(endpoint, self._path)
        if self._path is not None:
            # of a daemon that was killed
            aside(self._path).unlink(missing_ok=True)
        # a connection that is waiting gets through to libzmq also when the door has been shut
        waiting = max(1, min(_WAITING, spare(resource.getrlimit(resource.RLIMIT_NOFILE)[0]) // 8))
        self._socket.listen(waiting)
        self._socket.setblocking(False)
        if self._path is None:
            port = self._socket.getsockname()[1]
            self.endpoint = f"{endpoint.rpartition(':')[0]}:{port}"

    def fileno(self) -> int:
        """Readable while a connection waits to be accepted."""
        return self._socket.fileno()

    def lend(self) -> int:
        """A descriptor of the socket for libzmq, which closes it."""
        return os.dup(self._socket.fileno())

    def close(self) -> None:
        """Let nobody in; those who are in stay."""
        with self._lock:
            if self._removed or self.shut:
                return
            self.shut = True
            if self._path is None:
                program = struct.pack("HP", 1, ctypes.addressof(_DROP))
                self._socket.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, program)
                return
            # a file that somebody has removed, or no descriptor for a socket in its place: nobody
            # can connect, which does as well
            with contextlib.suppress(OSError):
                os.rename(self._path, aside(self._path))
                self._closed = _bound(self.endpoint, self._path)
                self._closed.listen(1)

    def open(self) -> None:
        """Let everybody in again."""
        with self._lock:
            if self._removed or not self.shut:
                return
            self.shut = False
            if self._path is None:
                self._socket.setsockopt(socket.SOL_SOCKET, _DETACH_FILTER, 0)
                return
            with contextlib.suppress(OSError):
                os.rename(aside(self._path), self._path)
            if self._closed is not None:
                self._closed.close()
                self._closed = None

    def remove(self) -> None:
        """End it, and remove its file."""
        with self._lock:
            self._removed = True
            self._socket.close()
            if self._closed is not None:
                self._closed.close()
            if self._path is not None:
                self._path.unlink(missing_ok=True)
                aside(self._path).unlink(missing_ok=True)


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
            made.bind((host.strip("[]"), 0 if port == "*" else int(port)))
        else:
            made.bind(str(path))
            path.chmod(0o600)
    except BaseException:
        made.close()
        raise
    return made


def aside(path: Path) -> Path:
    """Where a socket file is while its door is shut."""
    return path.with_name(path.name + ".full")
