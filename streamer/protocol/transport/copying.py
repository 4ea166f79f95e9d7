"""Receives, copies and checks a message of many frames in one call (libzmq.py says why).

Keeping a received frame costs an object with a destructor, as much time as copying 30 kilobytes.
Messages of the feed have many small frames, so each message is copied to one block of memory.
"""

# mypy: no-check-untyped-defs
# (kernels are typed by numba, by the arguments of their first call)

from __future__ import annotations

import numpy as np
import zmq

from streamer.protocol.checksum_kernels import continue_crc32c
from streamer.protocol.checksums import crc32c_address
from streamer.protocol.transport.libzmq import (
    CLOSE,
    COPY,
    DATA,
    LIBZMQ,
    MESSAGE_BYTES,
    NOBLOCK,
    NOTHING,
    SIZE,
    msg_close,
    msg_data,
    msg_size,
    receive_frames,
)
from trie.cpu.foreign import foreign
from trie.cpu.jit import njit

# frames begin at multiples of this, so that numbers are aligned
_ALIGNMENT = 8
_copy = foreign("pointer", "pointer", "pointer", "size")


class Copier:
    """Receives messages of up to ``frames`` frames from ``socket``."""

    def __init__(self, socket: zmq.Socket[bytes], *, frames: int) -> None:
        self._socket = socket
        self._frames = frames
        self._crc = np.uint64(crc32c_address())
        # one more, for frames to drop
        self._storage = np.empty((frames + 1) * MESSAGE_BYTES, dtype=np.uint8)
        self._sizes = np.empty(frames, dtype=np.int64)
        self._results = np.zeros(2, dtype=np.int64)
        if not LIBZMQ.missing:
            # compile now rather than while a client waits for an answer
            self._take(np.uint64(0))

    def take(self) -> tuple[list[memoryview], int | None] | None:
        """Receive a message, None if there is none; never waits.

        Returns its frames, none at all if there were too many, and the CRC-32C of all but the last,
        None if ISA-L is missing. The frames begin at multiples of eight bytes in one block of
        memory, which lives as long as any of them. zmq.ZMQError if the socket has been closed.
        """
        if LIBZMQ.missing:
            return self._take_plainly()
        block = self._take(np.uint64(self._socket.underlying))
        count, crc = self._results.tolist()
        if count == NOTHING:
            if self._socket.closed:
                raise zmq.ZMQError(zmq.ENOTSOCK)
            return None
        view = block.data
        frames: list[memoryview] = []
        at = 0
        for size in self._sizes[: max(count, 0)].tolist():
            frames.append(view[at : at + size])
            at += (size + _ALIGNMENT - 1) & -_ALIGNMENT
        return frames, crc if self._crc else None

    def _take(self, socket: np.uint64) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        arrays = self._storage, self._sizes, self._results
        return _take(LIBZMQ.addresses, self._crc, socket, *arrays)

    def _take_plainly(self) -> tuple[list[memoryview], int | None] | None:
        try:
            found = self._socket.recv_multipart(NOBLOCK, copy=False)
        except zmq.Again:
            return None
        return [frame.buffer for frame in found] if len(found) <= self._frames else [], None


@njit(cache=True, nogil=True)
def _take(api, crc, socket, storage, sizes, results):
    """The message as one block of memory; results: gets the frame count (or NOTHING), the CRC-32C.

    The results are not returned with it, because an interrupt would then raise a SystemError: numba
    calls Python to make an array, and does not check for failure if the array is part of a tuple.
    """
    base = np.uint64(storage.ctypes.data)
    frames = receive_frames(api, socket, base, sizes.size)
    results[0] = frames if frames <= sizes.size and frames >= NOTHING else 0
    total = 0
    for number in range(max(results[0], 0)):
        sizes[number] = msg_size(api[SIZE], base + np.uint64(number * MESSAGE_BYTES))
        total += (sizes[number] + _ALIGNMENT - 1) & -_ALIGNMENT
    block = np.empty(total, dtype=np.uint8)
    found = np.uint32(0)
    at = 0
    for number in range(min(frames, sizes.size)):
        place = base + np.uint64(number * MESSAGE_BYTES)
        if results[0] and sizes[number]:
            begin = np.uint64(block.ctypes.data) + np.uint64(at)
            _copy(api[COPY], begin, msg_data(api[DATA], place), sizes[number])
            if crc and number < frames - 1:
                found = continue_crc32c(crc, found, begin, sizes[number])
            at += (sizes[number] + _ALIGNMENT - 1) & -_ALIGNMENT
        msg_close(api[CLOSE], place)
    results[1] = found
    return block
