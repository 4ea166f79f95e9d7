"""Sends all frames of many messages in one call (libzmq.py says why)."""

# mypy: no-check-untyped-defs
# (kernels are typed by numba, by the arguments of their first call)

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import zmq
from numba import carray  # type: ignore[attr-defined]

from streamer.protocol.header import Buffer
from streamer.protocol.transport.held import SMALL_BYTES, HeldBytes, send_counted
from streamer.protocol.transport.libzmq import LIBZMQ, MESSAGE_BYTES, SEND
from trie.cpu.foreign import foreign
from trie.cpu.intrinsics import pointer
from trie.cpu.jit import njit

_MORE = int(zmq.SNDMORE | zmq.NOBLOCK)
_LAST = int(zmq.NOBLOCK)
# smaller frames are copied into one buffer, which is faster than looking up their addresses
_SMALL = 1 << 13
_NOT_COUNTED = np.zeros(0, np.uint64)

_READ = 0x100  # PyBUF_READ
# a ctypes array would need a type for each size, and types stay until a rare garbage collection
_view_at = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)(
    ("PyMemoryView_FromMemory", ctypes.pythonapi)
)

# zmq_send(socket, data, size, flags)
_zmq_send = foreign("int", "pointer", "pointer", "size", "int")


class Placed(NamedTuple):
    """Frames in memory: at ``address`` are ``pairs`` of int64, each frame's address and size.

    owner: keeps that memory alive.
    """

    address: int
    pairs: int
    owner: Any

    def frames(self) -> list[bytes]:
        """Copies of the frames."""
        return [ctypes.string_at(*pair) for pair in self._pairs()]

    def views(self) -> list[memoryview]:
        """Views of the frames, valid while ``owner`` lives."""
        return [_view_at(*pair, _READ) for pair in self._pairs()]

    def sizes(self) -> list[int]:
        """The sizes of the frames."""
        return [size for _, size in self._pairs()]

    def _pairs(self) -> list[list[int]]:
        numbers = _view_at(self.address, 16 * self.pairs, _READ)
        pairs: list[list[int]] = numbers.cast("q", (self.pairs, 2)).tolist()
        return pairs


Message = Sequence[Buffer | Placed]


def send_all(
    socket: zmq.Socket[bytes],
    messages: Sequence[Message],
    held: HeldBytes | None = None,
    shares: Sequence[int] = (),
) -> None:
    """Send messages; never waits. held: counts them as long as they wait in libzmq.

    shares: bytes to count with each message besides its frames, none by default.

    For sockets that drop messages for a full peer. zmq.ZMQError if one cannot be sent.
    """
    if not messages:
        return
    sent = 0
    if not LIBZMQ.missing:
        # address (0: next in the joined bytes), size (below 0: pairs), whether it is the last,
        # bytes to count with it
        parts: list[int] = []
        small: list[Buffer] = []
        for message, share in zip(messages, shares or [0] * len(messages), strict=True):
            for frame in message:
                if isinstance(frame, Placed):
                    parts += (frame.address, -frame.pairs, 0, share)
                elif (size := len(frame)) < _SMALL:
                    small.append(frame)
                    parts += (0, size, 0, share)
                else:
                    parts += (np.frombuffer(frame, np.uint8).ctypes.data, size, 0, share)
                share = 0
            parts[-2] = 1
        joined = np.frombuffer(b"".join(small) or b"\0", np.uint8)
        table = np.array(parts, np.int64)
        counting = _NOT_COUNTED if held is None else held.table
        sent = _send(LIBZMQ.addresses, counting, np.uint64(socket.underlying), joined, table)
    if sent < 0:
        return
    # pyzmq sends the rest, or raises the error
    for number, (frame, last) in enumerate(_each(messages)):
        if number >= sent:
            socket.send(frame, _LAST if last else _MORE)


def measure(message: Message) -> tuple[int, int]:
    """The bytes and the number of the frames of a message."""
    sizes: list[int] = []
    for frame in message:
        sizes += frame.sizes() if isinstance(frame, Placed) else [len(frame)]
    return sum(sizes), len(sizes)


def _each(messages: Sequence[Message]) -> Iterator[tuple[Buffer, bool]]:
    """Every frame, and whether it is the last of a message."""
    for message in messages:
        frames: list[Buffer] = []
        for frame in message:
            frames += frame.frames() if isinstance(frame, Placed) else [frame]
        for number, each in enumerate(frames, 1):
            yield each, number == len(frames)


@njit(cache=True, nogil=True)
def _send(api, counting, socket, joined, table):
    """Send the frames of ``table``; returns -1, or the index of the one that could not be sent."""
    message = np.empty(MESSAGE_BYTES // 8, np.uint64)
    at = np.uint64(joined.ctypes.data)
    number = 0
    further = np.int64(0)
    for part in range(0, table.size, 4):
        where, size, last = table[part], table[part + 1], table[part + 2]
        further += table[part + 3]
        count = -size if size < 0 else 1
        for i in range(count):
            place = np.uint64(where)
            length = size
            if size < 0:
                pair = carray(pointer(place + np.uint64(16 * i)), 2, np.int64)
                place = np.uint64(pair[0])
                length = pair[1]
            elif where == 0:
                place = at
                at += np.uint64(size)
            flags = np.int32(_LAST if last and i == count - 1 else _MORE)
            if counting.size and length > SMALL_BYTES:
                there = np.uint64(message.ctypes.data)
                sent = send_counted(api, counting, there, socket, place, length, further, flags)
                further = np.int64(0)
            else:
                sent = _zmq_send(api[SEND], socket, place, length, flags)
            if sent < 0:
                return number
            number += 1
    return -1
