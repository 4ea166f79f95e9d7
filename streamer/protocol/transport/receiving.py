"""Messages of many frames, received in one call of libzmq (libzmq.py beside this), not copied."""

# mypy: no-check-untyped-defs
# (kernels are typed by numba, by the arguments of their first call)

from __future__ import annotations

from typing import Any

import numpy as np
import zmq
from numpy.typing import NDArray

from streamer.protocol.transport.libzmq import (
    MESSAGE_BYTES,
    MESSAGE_FUNCTIONS,
    NOBLOCK,
    TRIES,
    address_of,
    msg_close,
    msg_data,
    msg_init,
    msg_more,
    msg_recv,
    msg_size,
)
from trie.cpu.jit import njit


def receive(
    socket: zmq.Socket[bytes], *, messages: int, frames: int, size: int
) -> list[list[memoryview]]:
    """Messages that have come, so many at most and about ``size`` bytes; does not wait.

    Of a message no more than ``frames`` frames are kept, the others are dropped.
    """
    addresses = [address_of(name) for name in MESSAGE_FUNCTIONS]
    if not all(addresses):
        return _receive_plainly(socket, messages, frames, size)
    capacity = messages * frames
    # one more for what is dropped
    storage = np.empty((capacity + 1) * MESSAGE_BYTES, dtype=np.uint8)
    where, sizes = np.empty(capacity, dtype=np.uint64), np.empty(capacity, dtype=np.int64)
    counts = np.zeros(messages, dtype=np.int64)
    api = np.array(addresses, dtype=np.uint64)
    found = _receive(api, np.uint64(socket.underlying), storage, where, sizes, counts, frames, size)
    taken: list[list[memoryview]] = []
    at = 0
    for count in counts[:found].tolist():
        taken.append(
            [_Frame(storage, i, int(where[i]), int(sizes[i])).view() for i in range(at, at + count)]
        )
        at += count
    return taken


def _receive_plainly(
    socket: zmq.Socket[bytes], messages: int, frames: int, size: int
) -> list[list[memoryview]]:
    taken: list[list[memoryview]] = []
    total = 0
    while len(taken) < messages and total < size:
        try:
            found = socket.recv_multipart(NOBLOCK, copy=False)
        except zmq.Again:
            break
        taken.append([frame.buffer for frame in found[:frames]])
        total += sum(map(len, taken[-1]))
    return taken


class _Frame:
    """A frame that has been received; it is given back once nobody looks at it any more."""

    __slots__ = ("__array_interface__", "_at", "_storage")

    def __init__(self, storage: NDArray[np.uint8], at: int, address: int, size: int) -> None:
        self._storage = storage
        self._at = at
        self.__array_interface__: dict[str, Any] = {
            "data": (address, True),
            "shape": (size,),
            "typestr": "|u1",
            "version": 3,
        }

    def view(self) -> memoryview:
        """The bytes; they stay while somebody has them."""
        return np.asarray(self).data if self.__array_interface__["shape"][0] else memoryview(b"")

    def __del__(self) -> None:
        _give_back(np.uint64(address_of("zmq_msg_close")), self._storage, self._at)


@njit(cache=True)
def _give_back(close, storage, at):
    msg_close(close, np.uint64(storage.ctypes.data) + np.uint64(at * MESSAGE_BYTES))


@njit(cache=True, nogil=True)
def _receive(api, socket, storage, where, sizes, counts, most, limit):
    """Receive whole messages; how many. ``counts``: frames that are kept of each."""
    init, recv, close, data, size, more = api[0], api[1], api[2], api[3], api[4], api[5]
    base = np.uint64(storage.ctypes.data)
    kept = 0
    total = 0
    tries = 0
    for message in range(counts.size):
        frames = 0
        while True:
            # what is too much for one message is written over by the next one
            place = base + np.uint64(kept * MESSAGE_BYTES)
            msg_init(init, place)
            if msg_recv(recv, place, socket, np.int32(NOBLOCK)) < 0:
                msg_close(close, place)
                tries += 1
                if frames and tries < TRIES:
                    continue  # interrupted: what belongs to a message has come with it
                for at in range(kept - min(frames, most), kept):
                    msg_close(close, base + np.uint64(at * MESSAGE_BYTES))
                return message
            goes_on = msg_more(more, place) != 0
            if frames < most:
                where[kept] = msg_data(data, place)
                sizes[kept] = msg_size(size, place)
                total += sizes[kept]
                kept += 1
            else:
                msg_close(close, place)
            frames += 1
            if not goes_on:
                break
        counts[message] = min(frames, most)
        if total >= limit:
            return message + 1
    return counts.size
