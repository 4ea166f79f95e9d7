"""All frames of many messages, sent in one call (streamer/daemon/libzmq.py says why)."""

# mypy: no-check-untyped-defs
# (kernels are typed by numba, by the arguments of their first call)

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import zmq
from numba import njit

from streamer.daemon.libzmq import address_of, foreign

Buffer = bytes | memoryview

_MORE = int(zmq.SNDMORE | zmq.NOBLOCK)
_LAST = int(zmq.NOBLOCK)

# zmq_send(socket, data, size, flags)
_zmq_send = foreign("int", "pointer", "pointer", "size", "int")


def send_all(socket: zmq.Socket[bytes], messages: Sequence[Sequence[Buffer]]) -> None:
    """Send messages, each of some frames; never waits.

    For sockets that drop what a peer has no room for. zmq.ZMQError if one cannot be sent.
    """
    if not messages:
        return
    frames = [frame for message in messages for frame in message]
    sizes = np.array([*map(len, frames)], dtype=np.int64)
    ends = np.zeros(sizes.size, dtype=np.bool_)
    ends[list(accumulate(map(len, messages), initial=-1))[1:]] = True
    sent = 0
    address = address_of("zmq_send")
    if address:
        data = np.frombuffer(b"".join(frames), dtype=np.uint8)
        sent = _send(np.uint64(address), np.uint64(socket.underlying), data, sizes, ends)
    # pyzmq sends the rest, or says why it cannot
    for number in range(sent, len(frames)):
        socket.send(frames[number], _LAST if ends[number] else _MORE)


@njit(cache=True, nogil=True)
def _send(address, socket, data, sizes, ends):  # type: ignore[no-untyped-def]
    """Send ``data`` as frames of those sizes; how many have been sent. ``ends``: of a message."""
    at = np.uint64(data.ctypes.data)
    for number in range(sizes.size):
        flags = np.int32(_LAST if ends[number] else _MORE)
        if _zmq_send(address, socket, at, sizes[number], flags) < 0:
            return number
        at += np.uint64(sizes[number])
    return sizes.size
