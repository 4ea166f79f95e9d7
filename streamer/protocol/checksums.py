"""CRC-32C, the one of iSCSI and ext4, of frames.

Sums are as usual: inverted before and after, 0 for nothing, 0xE3069283 for ``123456789``. Kernels
find theirs in ``checksum_kernels``; this module imports no numba.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from functools import cache

import numpy as np
from crc32c import crc32c as _plain

from trie.cpu.borrowed import Borrowed

# up to this, releasing the GIL and waiting for it again takes longer than the sum
_AT_ONCE = 1 << 18
_ALL = 0xFFFFFFFF

CALL_BYTES = 1 << 30
"""ISA-L is called with up to this: the length is an int of C."""

ISA_L = Borrowed("ISA-L", "isal.isal_zlib", ("crc32_iscsi",))
"""Without it ``crc32c`` computes all sums."""


def crc32c_address() -> int:
    """The address of ISA-L's function, 0 if it is missing."""
    return 0 if ISA_L.missing else int(ISA_L.addresses[0])


@cache
def _function(address: int) -> Callable[[int, int, int], int]:
    # ctypes releases the GIL during a call
    kind = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32)
    return kind(address)


def crc32c(frames: Iterable[bytes | memoryview], value: int = 0) -> int:
    """CRC-32C over the frames, one after the other; ``value``: the sum of what comes before them.

    The GIL is released for large frames only.
    """
    for frame in frames:
        if len(frame) <= _AT_ONCE:
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
