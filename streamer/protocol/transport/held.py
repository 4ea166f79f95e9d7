"""Counts the bytes of sent messages that wait in libzmq, over all connections.

libzmq's limits count messages, not bytes. A message that waits for several connections is in memory
once, and libzmq calls a function when none needs it any more: here one that subtracts its bytes
from a counter and frees it. Each frame has its own block of memory, which begins with four words:

        counted bytes | address of the counter | address of free | unused
"""

# mypy: no-check-untyped-defs
# (kernels are typed by numba, by the arguments of their first call)

from __future__ import annotations

import functools
from typing import Any

import numba
import numpy as np
from numba import carray, types  # type: ignore[attr-defined]
from numpy.typing import NDArray

from streamer.protocol.transport.libzmq import CLOSE, COPY, LIBZMQ, msg_close
from trie.cpu.foreign import Borrowed, foreign
from trie.cpu.intrinsics import array_address, pointer
from trie.cpu.jit import njit
from trie.cpu.llvm import I64, instruction

HELD = Borrowed(
    "libzmq memory",
    "zmq.backend.cython._zmq",
    ("zmq_msg_init_data", "zmq_msg_send", "malloc", "free"),
)
"""Without these, or without the functions of ``libzmq.py``, nothing is counted."""

SMALL_BYTES = 32
"""Frames up to this size lie within libzmq's message structure and are not counted."""

_HEAD_BYTES = 32
FRAME_BYTES = 128
"""What libzmq and malloc need for a frame besides its bytes, once for all connections."""

_INIT_DATA, _SEND, _MALLOC, _FREE = range(4)

_init_data = foreign("int", "pointer", "pointer", "size", "pointer", "pointer")
_msg_send = foreign("int", "pointer", "pointer", "int")
_malloc = foreign("pointer", "size")
_free = foreign("int", "pointer")
_copy = foreign("pointer", "pointer", "pointer", "size")

# kept for ever: libzmq may still write to them when nobody else refers to them
_COUNTERS: list[NDArray[np.int64]] = []


@instruction(types.int64, types.uint64, types.int64)
def _add(builder: Any, address: Any, number: Any) -> Any:
    """Atomically add to a number in memory."""
    place = builder.inttoptr(address, I64.as_pointer())
    return builder.atomic_rmw("add", place, number, "monotonic")


class HeldBytes:
    """The bytes of sent messages that wait in libzmq, including its overhead for each frame."""

    def __init__(self) -> None:
        self._counter = np.zeros(1, np.int64)
        _COUNTERS.append(self._counter)
        self._table = np.zeros(0, np.uint64)
        if not self.missing:
            addresses = [array_address(self._counter), _released().address, *HELD.addresses]
            self._table = np.array(addresses, np.uint64)

    @property
    def missing(self) -> bool:
        """Whether counting is impossible."""
        return bool(HELD.missing or LIBZMQ.missing)

    @property
    def bytes(self) -> int:
        """How many bytes wait now."""
        return int(self._counter[0])

    @property
    def table(self) -> NDArray[np.uint64]:
        """The table for ``send_counted``; empty if counting is impossible."""
        return self._table


@functools.cache
def _released() -> Any:
    """The callback for libzmq, compiled once a process; its threads call it without the GIL."""

    @numba.cfunc(types.void(types.uint64, types.uint64))
    def release(_data, block):
        head = carray(pointer(block), 3, np.int64)
        _add(np.uint64(head[1]), -head[0])
        _free(np.uint64(head[2]), block)

    return release


@njit(cache=True, nogil=True)
def send_counted(api, table, message, socket, place, size, further, flags):
    """Send a frame, copied and counted; returns a negative number if it could not be sent.

    api: addresses of libzmq's functions. table: ``HeldBytes.table``. message: address of a
    zmq_msg_t. further: bytes that are counted with it.
    """
    block = np.uint64(_malloc(table[2 + _MALLOC], size + _HEAD_BYTES))
    if block == 0:
        return -1
    counted = size + FRAME_BYTES + further
    head = carray(pointer(block), 3, np.int64)
    head[0] = counted
    head[1] = np.int64(table[0])
    head[2] = np.int64(table[2 + _FREE])
    data = block + np.uint64(_HEAD_BYTES)
    _copy(api[COPY], data, place, size)
    _add(table[0], counted)
    _init_data(table[2 + _INIT_DATA], message, data, size, table[1], block)
    sent = _msg_send(table[2 + _SEND], message, socket, flags)
    if sent < 0:
        msg_close(api[CLOSE], message)
    return sent
