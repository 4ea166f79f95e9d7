"""Text as bit planes for the scan: low and high bits of the codes and the gaps, both ways.

Symbol i of the covered range is bit i + MARGIN of ``planes[0]`` (low), ``[1]`` (high) and ``[2]``
(gap), and of ``planes[3..5]`` counted from the end, so the symbols before a place, read backwards,
are a window too. Bits outside the range are zero.

Operations: one vector test per 64 symbols, plane and direction, and a bit reversal.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from trie.cpu.intrinsics import reversed_bits
from trie.cpu.jit import njit
from trie.cpu.vectors import marked

MARGIN: Final = 64
LOW, HIGH, GAP, LOW_BACK, HIGH_BACK, GAP_BACK = range(6)


@njit(cache=True, nogil=True, inline="always")
def plane_bytes(symbols):
    """The bytes of a plane for that many symbols."""
    return (symbols + 7) // 8 + 2 * MARGIN // 8 + 8


@njit(cache=True, nogil=True, inline="always")
def _store(plane, byte, word):
    for j in range(8):
        plane[byte + j] = np.uint8(word >> np.uint64(8 * j))


@njit(cache=True, nogil=True)
def fill_planes(bases, first, stop, planes):
    """Make the planes of the symbols [first, stop); uint8[6, >= plane_bytes(stop - first)]."""
    total = stop - first
    margin = MARGIN // 8
    whole = total // 64
    planes[:, :margin] = 0
    planes[:, margin + 8 * whole :] = 0
    for plane in range(3):
        forward, back = planes[plane], planes[3 + plane]
        bit = np.uint8(1 << plane)
        for i in range(whole):
            # the next 64 symbols from the front, and 64 from the end, counted backwards
            _store(forward, margin + 8 * i, marked(bases, first + 64 * i, bit))
            before = marked(bases, stop - 64 * (i + 1), bit)
            _store(back, margin + 8 * i, reversed_bits(before))
        for at in range(64 * whole, total):
            one = (bases[first + at] >> plane) & 1
            forward[margin + (at >> 3)] |= np.uint8(one << (at & 7))
            one = (bases[stop - 1 - at] >> plane) & 1
            back[margin + (at >> 3)] |= np.uint8(one << (at & 7))


@njit(cache=True, nogil=True, inline="always")
def window(plane, at):
    """The 32 bits of a plane (a row of ``planes``) starting at symbol ``at`` >= -MARGIN."""
    place = np.uint64(at + MARGIN)
    byte = place >> np.uint64(3)
    word = np.uint64(0)
    for j in range(8):
        word |= np.uint64(plane[byte + np.uint64(j)]) << np.uint64(8 * j)
    return np.uint32(word >> (place & np.uint64(7)))
