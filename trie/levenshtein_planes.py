"""Text as bit planes for the scan: low and high bits of the codes and the gaps, both ways.

Symbol i of the covered range is bit i + MARGIN of ``planes[0]`` (low), ``[1]`` (high) and ``[2]``
(gap), and of ``planes[3..5]`` counted from the end, so that the symbols before a place are a window
that runs backwards. What lies outside the range is zero.

Operations: three products for eight symbols and direction, which gather one bit of each byte.
"""

# mypy: no-check-untyped-defs

from __future__ import annotations

from typing import Final

import numpy as np
from numba import njit

MARGIN: Final = 64
LOW, HIGH, GAP, LOW_BACK, HIGH_BACK, GAP_BACK = range(6)


@njit(cache=True, nogil=True, inline="always")
def plane_bytes(symbols):  # type: ignore[no-untyped-def]
    """Bytes a plane of so many symbols."""
    return (symbols + 7) // 8 + 2 * MARGIN // 8 + 8


@njit(cache=True, nogil=True)
def fill_planes(bases, first, stop, planes):  # type: ignore[no-untyped-def]
    """Make the planes of the symbols [first, stop); uint8[6, >= plane_bytes(stop - first)]."""
    bits = np.uint64(0x0101010101010101)
    onward = np.uint64(0x0102040810204080)
    planes[:, :] = 0
    total = stop - first
    whole = total // 8
    margin = MARGIN // 8
    for i in range(whole):
        word = np.uint64(0)
        for j in range(8):
            word |= np.uint64(bases[first + 8 * i + j]) << np.uint64(8 * j)
        for plane in range(3):
            bit = (word >> np.uint64(plane)) & bits
            planes[plane, margin + i] = np.uint8((bit * onward) >> np.uint64(56))
    for at in range(8 * whole, total):
        for plane in range(3):
            bit = (bases[first + at] >> plane) & 1
            planes[plane, margin + (at >> 3)] |= np.uint8(bit << (at & 7))
    # backwards: symbol total - 1 - i; eight at once from the last symbol on
    backward = np.uint64(0x8040201008040201)
    for i in range(whole):
        word = np.uint64(0)
        begin = stop - 8 * (i + 1)
        for j in range(8):
            word |= np.uint64(bases[begin + j]) << np.uint64(8 * j)
        for plane in range(3):
            bit = (word >> np.uint64(plane)) & bits
            planes[3 + plane, margin + i] = np.uint8((bit * backward) >> np.uint64(56))
    for at in range(8 * whole, total):
        for plane in range(3):
            bit = (bases[stop - 1 - at] >> plane) & 1
            planes[3 + plane, margin + (at >> 3)] |= np.uint8(bit << (at & 7))


@njit(cache=True, nogil=True, inline="always")
def window(plane, at):  # type: ignore[no-untyped-def]
    """The 32 bits of a plane (a row of ``planes``) from symbol ``at`` on; at >= -MARGIN."""
    place = np.uint64(at + MARGIN)
    byte = place >> np.uint64(3)
    word = np.uint64(0)
    for j in range(8):
        word |= np.uint64(plane[byte + np.uint64(j)]) << np.uint64(8 * j)
    return np.uint32(word >> (place & np.uint64(7)))
