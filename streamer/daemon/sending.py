"""All frames of many messages in one call, without the interpreter's lock.

A socket of pyzmq gives the lock back and asks for it again with every frame. What is said about a
batch has 25 of them, the other threads want the lock too, and waiting for it took longer than all
that the feed does otherwise. So libzmq's ``zmq_send``, which pyzmq brings along, is called for all
of them in a row.
"""

# mypy: no-check-untyped-defs
# (kernels are typed by numba, by the arguments of their first call)

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from typing import Any

import numpy as np
import zmq
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

Buffer = bytes | memoryview

_MORE = int(zmq.SNDMORE | zmq.NOBLOCK)
_LAST = int(zmq.NOBLOCK)


def send_all(socket: zmq.Socket[bytes], messages: Sequence[Sequence[Buffer]]) -> None:
    """Send messages, each of some frames; never waits.

    For sockets that drop what a peer has no room for. zmq.ZMQError if one cannot be sent.
    """
    frames = [frame for message in messages for frame in message]
    sizes = np.array([*map(len, frames)], dtype=np.int64)
    ends = np.zeros(sizes.size, dtype=np.bool_)
    ends[list(accumulate(map(len, messages), initial=-1))[1:]] = True
    sent = 0
    address = _zmq_send()
    if address:
        data = np.frombuffer(b"".join(frames), dtype=np.uint8)
        sent = _send(np.uint64(address), np.uint64(socket.underlying), data, sizes, ends)
    # pyzmq sends the rest, or says why it cannot
    for number in range(sent, len(frames)):
        socket.send(frames[number], _LAST if ends[number] else _MORE)


@cache
def _zmq_send() -> int:
    """The address of libzmq's ``zmq_send``, 0 where it cannot be found."""
    try:
        library = ctypes.CDLL(importlib.import_module("zmq.backend.cython._zmq").__file__)
        return ctypes.cast(library.zmq_send, ctypes.c_void_p).value or 0
    except (ImportError, OSError, AttributeError):
        return 0


@intrinsic
def _call(typingctx: Any, address: Any, socket: Any, pointer: Any, size: Any, flags: Any) -> Any:
    """``int zmq_send(void *socket, const void *buf, size_t len, int flags)`` at an address."""
    signature = types.int32(types.uint64, types.uint64, types.uint64, types.int64, types.int64)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word, pointer = ir.IntType(32), ir.IntType(8).as_pointer()
        kind = ir.FunctionType(word, [pointer, pointer, ir.IntType(64), word])
        function = builder.inttoptr(args[0], kind.as_pointer())
        return builder.call(
            function,
            [
                builder.inttoptr(args[1], pointer),
                builder.inttoptr(args[2], pointer),
                args[3],
                builder.trunc(args[4], word),
            ],
        )

    return signature, codegen


@njit(cache=True, nogil=True)
def _send(address, socket, data, sizes, ends):  # type: ignore[no-untyped-def]
    """Send ``data`` as frames of those sizes; how many have been sent. ``ends``: of a message."""
    at = np.uint64(data.ctypes.data)
    for number in range(sizes.size):
        flags = np.int64(_LAST if ends[number] else _MORE)
        if _call(address, socket, at, sizes[number], flags) < 0:
            return number
        at += np.uint64(sizes[number])
    return sizes.size
