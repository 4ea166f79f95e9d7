"""A message of many frames, received, copied and checked in one call (see libzmq.py beside this).

A frame that is kept as it came costs an object with a destructor, as long as it takes to copy 30
kilobytes. Messages of the feed have many small frames: each message becomes one block of memory.
"""

# mypy: no-check-untyped-defs
# (kernels are typed by numba, by the arguments of their first call)

from __future__ import annotations

import numpy as np
import zmq

from streamer.protocol.checksums import crc32, crc32_address
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
from trie.cpu.foreign import foreign
from trie.cpu.jit import njit

# frames begin at multiples of it: those of numbers are aligned
_ALIGNMENT = 8
_copy = foreign("pointer", "pointer", "pointer", "size")


class Copier:
    """Takes messages from ``socket``, at most ``frames`` frames of each.

    unchecked: so many frames at the front of a message do not count in its checksum.
    """

    def __init__(self, socket: zmq.Socket[bytes], *, frames: int, unchecked: int) -> None:
        self._socket = socket
        self._frames = frames
        self._unchecked = unchecked
        # the loader finds what libzmq itself uses, too; loops of kernels copy byte by byte
        addresses = [address_of(name) for name in (*MESSAGE_FUNCTIONS, "memcpy")]
        self._known = all(addresses)
        self._checks = crc32_address() != 0
        self._api = np.array([*addresses, crc32_address()], dtype=np.uint64)
        # one more for what is dropped
        self._storage = np.empty((frames + 1) * MESSAGE_BYTES, dtype=np.uint8)
        self._sizes = np.empty(frames, dtype=np.int64)
        self._told = np.zeros(2, dtype=np.int64)
        if self._known:
            # compiled now, if it must be, and not while somebody waits for an answer
            _take(self._api, np.uint64(0), self._storage, self._sizes, self._told, unchecked)

    def take(self) -> tuple[list[memoryview], int | None] | None:
        """A message that has come, None if there is none; does not wait.

        Its frames, none at all if there were too many, which begin at multiples of eight bytes of
        one block of memory that stays while one of them is in use; and their CRC-32, None if there
        is nothing fast to reckon it with. zmq.ZMQError if the socket has been closed.
        """
        if not self._known:
            return self._take_plainly()
        handle = np.uint64(self._socket.underlying)
        block = _take(self._api, handle, self._storage, self._sizes, self._told, self._unchecked)
        count, found = self._told.tolist()
        if count < 0:
            if self._socket.closed:
                raise zmq.ZMQError(zmq.ENOTSOCK)
            return None
        view = block.data
        frames: list[memoryview] = []
        at = 0
        for size in self._sizes[:count].tolist():
            frames.append(view[at : at + size])
            at += (size + _ALIGNMENT - 1) & -_ALIGNMENT
        return frames, found if self._checks else None

    def _take_plainly(self) -> tuple[list[memoryview], int | None] | None:
        try:
            found = self._socket.recv_multipart(NOBLOCK, copy=False)
        except zmq.Again:
            return None
        return [frame.buffer for frame in found] if len(found) <= self._frames else [], None


@njit(cache=True, nogil=True)
def _take(api, socket, storage, sizes, told, unchecked):
    """The message in a block of memory; ``told``: how many frames, -1 if there is none, its CRC-32.

    Were it one tuple of all, an interruption would come out as a SystemError: numba calls Python to
    make an array, and does not look whether that has failed where the array is part of a tuple.
    """
    init, recv, close, data, size, more = api[0], api[1], api[2], api[3], api[4], api[5]
    copy, checks = api[6], api[7]
    base = np.uint64(storage.ctypes.data)
    frames = 0
    total = 0
    tries = 0
    torn = False
    goes_on = True
    while goes_on:
        # what is too much for one message is written over
        kept = min(frames, sizes.size)
        place = base + np.uint64(kept * MESSAGE_BYTES)
        msg_init(init, place)
        if msg_recv(recv, place, socket, np.int32(NOBLOCK)) < 0:
            msg_close(close, place)
            tries += 1
            if frames == 0:
                told[0] = -1
                return np.empty(0, dtype=np.uint8)
            if tries < TRIES:
                continue
            torn = True
            break
        goes_on = msg_more(more, place) != 0
        if frames < sizes.size:
            sizes[frames] = msg_size(size, place)
            total += (sizes[frames] + _ALIGNMENT - 1) & -_ALIGNMENT
        else:
            msg_close(close, place)
        frames += 1
    whole = frames <= sizes.size and not torn
    block = np.empty(total if whole else 0, dtype=np.uint8)
    found = np.uint32(0)
    at = 0
    for number in range(min(frames, sizes.size)):
        place = base + np.uint64(number * MESSAGE_BYTES)
        if whole and sizes[number]:
            begin = np.uint64(block.ctypes.data) + np.uint64(at)
            _copy(copy, begin, msg_data(data, place), sizes[number])
            if checks and number >= unchecked:
                found = crc32(checks, found, begin, sizes[number])
            at += (sizes[number] + _ALIGNMENT - 1) & -_ALIGNMENT
        msg_close(close, place)
    told[0] = frames if whole else 0
    told[1] = found
    return block
