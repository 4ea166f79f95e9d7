"""Connections of a socket by their descriptors: how to identify and end them."""

from __future__ import annotations

import contextlib
import os
from socket import SHUT_RDWR, SO_ACCEPTCONN, SOL_SOCKET
from socket import socket as stream_socket

ENDED = -1
"""Stands for the descriptor or inode of a connection that has ended."""


def inode(descriptor: int) -> int:
    """The inode, which identifies a connection; its descriptor may soon belong to another one."""
    try:
        return os.fstat(descriptor).st_ino
    except OSError:
        return ENDED


def end(descriptor: int) -> None:
    """End a connection; libzmq then frees all memory of it."""
    with contextlib.suppress(OSError):
        own = os.dup(descriptor)
        try:
            connection = stream_socket(fileno=own)
        except OSError:
            # the descriptor now belongs to a file
            os.close(own)
            return
        with connection:
            # shutting down a listening socket would shut everybody out
            if not connection.getsockopt(SOL_SOCKET, SO_ACCEPTCONN):
                connection.shutdown(SHUT_RDWR)
