"""Receives messages of many frames in one call, without copying (libzmq.py says why)."""

# mypy: no-check-untyped-defs
# (kernels are typed by numba, by the arguments of their first call)

from __future__ import annotations

from typing import Any

import numpy as np
import zmq
from numba import carray  # type: ignore[attr-defined]
from numpy.typing import NDArray

from streamer.protocol.transport.curve import NOBODY, Sender, sender_of
from streamer.protocol.transport.libzmq import (
    CLOSE,
    DATA,
    GETS,
    LIBZMQ,
    MESSAGE_BYTES,
    NOBLOCK,
    SIZE,
    msg_close,
    msg_data,
    msg_gets,
    msg_size,
    receive_frames,
)
from trie.cpu.intrinsics import pointer
from trie.cpu.jit import njit

# properties of a message, as text: its sender's key, and the descriptor of its connection
_PROPERTIES = np.frombuffer(b"User-Id\0__fd\0", np.uint8)
_SECOND = len(b"User-Id\0")
_TEXT_BYTES = 64


def receive(
    socket: zmq.Socket[bytes],
    *,
    messages: int,
    frames: int,
    size: int,
    senders: list[Sender] | None = None,
) -> list[list[memoryview]]:
    """Receive up to ``messages`` messages and about ``size`` bytes; never waits.

    Frames of a message beyond ``frames`` are dropped. senders: gets the sender of each message.
    """
    if LIBZMQ.missing:
        return _receive_plainly(socket, messages, frames, size, senders)
    capacity = messages * frames
    # one more, for frames to drop
    storage = np.empty((capacity + 1) * MESSAGE_BYTES, dtype=np.uint8)
    places, sizes = np.empty(capacity, dtype=np.uint64), np.empty(capacity, dtype=np.int64)
    counts = np.zeros(messages, dtype=np.int64)
    # two texts for each message
    texts = np.zeros((messages if senders is not None else 0, 2, _TEXT_BYTES), dtype=np.uint8)
    arrays = storage, places, sizes, counts, _PROPERTIES, texts
    found = _receive(LIBZMQ.addresses, np.uint64(socket.underlying), *arrays, frames, size)
    taken: list[list[memoryview]] = []
    at = 0
    for count in counts[:found].tolist():
        taken.append(
            [
                _Frame(storage, i, int(places[i]), int(sizes[i])).view()
                for i in range(at, at + count)
            ]
        )
        at += count
    if senders is not None:
        senders += [_sender(*pair) for pair in texts[:found]]
    return taken


def _sender(user: NDArray[np.uint8], descriptor: NDArray[np.uint8]) -> Sender:
    who, where = (text.tobytes().partition(b"\0")[0].decode() for text in (user, descriptor))
    return Sender(who, int(where)) if who and where else NOBODY


def _receive_plainly(
    socket: zmq.Socket[bytes], messages: int, frames: int, size: int, senders: list[Sender] | None
) -> list[list[memoryview]]:
    taken: list[list[memoryview]] = []
    total = 0
    while len(taken) < messages and total < size:
        try:
            found = socket.recv_multipart(NOBLOCK, copy=False)
        except zmq.Again:
            break
        taken.append([frame.buffer for frame in found[:frames]])
        if senders is not None:
            senders.append(sender_of(found[0]))
        total += sum(map(len, taken[-1]))
    return taken


class _Frame:
    """A received frame, closed once its last view is gone."""

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
        return np.asarray(self).data if self.__array_interface__["shape"][0] else memoryview(b"")

    def __del__(self) -> None:
        _close(LIBZMQ.addresses, self._storage, self._at)


@njit(cache=True)
def _close(api, storage, at):
    msg_close(api[CLOSE], np.uint64(storage.ctypes.data) + np.uint64(at * MESSAGE_BYTES))


@njit(cache=True)
def _copy_text(address, text):
    """Copy a C string, if there is one, truncated to the space in ``text``."""
    if np.uint64(address) == 0:
        return
    letters = carray(pointer(np.uint64(address)), text.size, np.uint8)
    for i in range(text.size - 1):
        if letters[i] == 0:
            return
        text[i] = letters[i]


@njit(cache=True)
def _receive(api, socket, storage, places, sizes, counts, properties, texts, most, limit):
    """Receive whole messages; returns how many. counts: gets the frames of each, up to ``most``.

    texts: gets the properties of the senders, if it has room.
    """
    names = np.uint64(properties.ctypes.data)
    base = np.uint64(storage.ctypes.data)
    kept = 0
    total = 0
    for message in range(counts.size):
        frames = receive_frames(api, socket, base + np.uint64(kept * MESSAGE_BYTES), most)
        if frames < 0:
            return message
        counts[message] = min(frames, most)
        if texts.shape[0]:
            first = base + np.uint64(kept * MESSAGE_BYTES)
            _copy_text(msg_gets(api[GETS], first, names), texts[message, 0])
            second = names + np.uint64(_SECOND)
            _copy_text(msg_gets(api[GETS], first, second), texts[message, 1])
        for _ in range(counts[message]):
            place = base + np.uint64(kept * MESSAGE_BYTES)
            places[kept] = msg_data(api[DATA], place)
            sizes[kept] = msg_size(api[SIZE], place)
            total += sizes[kept]
            kept += 1
        if total >= limit:
            return message + 1
    return counts.size
