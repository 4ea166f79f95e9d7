"""CRC-32C of frames, the checksum of iSCSI and ext4.

It is the usual one: inverted before and after, 0 for no data, 0xE3069283 for ``123456789``. For
kernels see ``checksum_kernels``; this module does not import numba.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from functools import cache

import numpy as np
from crc32c import crc32c as _plain

from trie.cpu.foreign import Borrowed
from trie.cpu.threads import GIL_BYTES

_ALL = 0xFFFFFFFF

CALL_BYTES = 1 << 30
"""ISA-L is called with at most this many bytes, since the length is a C int."""

ISA_L = Borrowed("ISA-L", "isal.isal_zlib", ("crc32_iscsi",))
"""Without it the ``crc32c`` package computes all checksums."""


def crc32c_address() -> int:
    """The address of ISA-L's function, 0 if it is missing."""
    return 0 if ISA_L.missing else int(ISA_L.addresses[0])


@cache
def _function(address: int) -> Callable[[int, int, int], int]:
    # ctypes releases the GIL during a call
    kind = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32)
    return kind(address)


def crc32c(frames: Iterable[bytes | memoryview], value: int = 0) -> int:
    """CRC-32C over the concatenated frames; ``value``: the checksum of what precedes them.

    The GIL is released for large frames only.
    """
    for frame in frames:
        if len(frame) <= GIL_BYTES:
            value = _plain(frame, value, 0)
        elif address := crc32c_address():
            value = _large(_function(address), frame, value)
        else:
            value = _plain(frame, value, 1)
    return value


def _large(function: Callable[[int, int, int], int], frame: bytes | memoryview, value: int) -> int:
    array = np.frombuffer(frame, np.uint8)
    state = value ^ _ALL
    for at in range(0, array.size, CALL_BYTES):
        state = function(array.ctypes.data + at, min(array.size - at, CALL_BYTES), state)
    return state ^ _ALL
