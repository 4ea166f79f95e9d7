"""Connections of a socket by their descriptors: which they are, and their end."""

from __future__ import annotations

import contextlib
import os
from socket import SHUT_RDWR, SO_ACCEPTCONN, SOL_SOCKET
from socket import socket as stream_socket

ENDED = -1
"""In the place of a descriptor or an inode of a connection that has ended."""


def inode(descriptor: int) -> int:
    """What tells a connection apart: its descriptor may belong to another one soon."""
    try:
        return os.fstat(descriptor).st_ino
    except OSError:
        return ENDED


def end(descriptor: int) -> None:
    """End a connection: libzmq then frees all that it keeps for it."""
    with contextlib.suppress(OSError):
        own = os.dup(descriptor)
        try:
            connection = stream_socket(fileno=own)
        except OSError:
            # a file has the descriptor now
            os.close(own)
            return
        with connection:
            # shutting a listening socket down would shut everybody out
            if not connection.getsockopt(SOL_SOCKET, SO_ACCEPTCONN):
                connection.shutdown(SHUT_RDWR)
