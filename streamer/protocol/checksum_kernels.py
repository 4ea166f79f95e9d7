"""CRC-32C for kernels, which call ISA-L (isal's wheel), and checksums of concatenated parts.

The checksum of a concatenation follows from those of its parts, so data that a kernel has processed
need not be read again when a frame is put in front of it.
"""

from itertools import accumulate, repeat
from typing import Any

import numpy as np

from streamer.protocol.wire import CALL_BYTES
from trie.cpu.jit import njit
from trie.cpu.llvm import foreign

_ALL_BITS = np.uint32(0xFFFFFFFF)
# reflected: the highest bit is the coefficient of 1, the lowest that of x^31
_POLYNOMIAL, _HIGHEST, _MASK = 0x82F63B78, 1 << 31, (1 << 32) - 1

_crc32_iscsi = foreign("unsigned", "pointer", "int", "unsigned")


@njit(cache=True, nogil=True)
def continue_crc32c(function: Any, value: Any, address: Any, size: Any) -> Any:
    """For kernels: continue a checksum over ``size`` bytes at an address.

    function: ``crc32c_address`` (uint64). value: uint32, as is the result. address: uint64.
    """
    state = np.uint32(value) ^ _ALL_BITS
    at = np.int64(0)
    while at < size:
        part = min(size - at, CALL_BYTES)
        state = _crc32_iscsi(function, np.uint64(address) + np.uint64(at), np.int32(part), state)
        at += part
    return state ^ _ALL_BITS


def _product(a: int, b: int) -> int:
    """The product of two polynomials modulo that of the checksum."""
    product = 0
    while a:
        if a & _HIGHEST:
            product ^= b
        a = (a << 1) & _MASK
        b = (b >> 1) ^ (_POLYNOMIAL if b & 1 else 0)
    return product


_times = njit(_product, cache=True)

# x^(2^n) for every n
_POWERS = np.array([*accumulate(repeat(1 << 30, 63), lambda power, _: _product(power, power))])


@njit(cache=True)
def combine(crc_a: Any, crc_b: Any, length_b: Any) -> Any:
    """The checksum of two concatenated parts, from that of each and the length of the second.

    ``combine(crc_a, crc_ab, length_b)`` is the checksum of the second part. Also for kernels.
    """
    # append 8 * length_b zero bits to the first part, then add the second
    value = np.int64(crc_a)
    remaining = np.int64(length_b)
    power = 3
    while remaining:
        if remaining & 1:
            value = _times(_POWERS[power], value)
        remaining >>= 1
        power += 1
    return value ^ np.int64(crc_b)
