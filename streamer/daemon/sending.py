"""All frames of a message in one call, without the interpreter's lock.

A socket of pyzmq gives the lock back and asks for it again with every frame. A message of the feed
has up to ten, the other threads want the lock too, and each time takes as long as encoding a
column. So libzmq's ``zmq_send``, which pyzmq brings along, is called for all of them in a row.
"""

# mypy: no-check-untyped-defs
# (kernels are typed by numba, by the arguments of their first call)

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Sequence
from functools import cache
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import zmq
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

_LARGE = 1 << 20
_MORE = int(zmq.SNDMORE | zmq.NOBLOCK)
_LAST = int(zmq.NOBLOCK)


def send_parts(
    socket: zmq.Socket[bytes], first: Sequence[bytes], block: bytes, sizes: Sequence[int]
) -> None:
    """Send the frames ``first``, then ``block`` cut up into frames of these sizes; never waits.

    For sockets that drop what a peer has no room for. zmq.ZMQError if it cannot be sent.
    """
    sent = 0
    # large frames are better not copied once more
    address = _zmq_send() if len(block) < _LARGE else 0
    if address:
        heads = np.array([*map(len, first)], dtype=np.int64)
        tails = np.array(sizes, dtype=np.int64)
        sent = _send(
            np.uint64(address),
            np.uint64(socket.underlying),
            np.frombuffer(b"".join(first), dtype=np.uint8),
            heads,
            np.frombuffer(block, dtype=np.uint8),
            tails,
        )
    if sent < len(first) + len(sizes):
        # pyzmq sends the rest, or says why it cannot
        view = memoryview(block)
        stops = [0, *accumulate(sizes)]
        frames: list[Any] = [*first, *(view[a:b] for a, b in pairwise(stops))]
        for frame in frames[sent:-1]:
            socket.send(frame, _MORE, copy=False)
        socket.send(frames[-1], _LAST, copy=False)


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
def _send(address, socket, head, head_sizes, block, sizes):  # type: ignore[no-untyped-def]
    """Send ``head``, then ``block``, as frames of those sizes; how many have been sent."""
    frames = head_sizes.size + sizes.size
    at = np.uint64(head.ctypes.data)
    for number in range(frames):
        tail = number - head_sizes.size
        if tail == 0:
            at = np.uint64(block.ctypes.data)
        size = head_sizes[number] if tail < 0 else sizes[tail]
        flags = np.int64(_LAST if number == frames - 1 else _MORE)
        if _call(address, socket, at, size, flags) < 0:
            return number
        at += np.uint64(size)
    return frames
