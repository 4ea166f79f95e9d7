"""Where windows start, one bit per symbol: bit s % 32 of word s / 32 of a uint32 array.

A window of k symbols may start wherever k symbols of one read follow without a gap code. Bits are
set a word at a time, read by read, then cleared before gap codes.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from trie.codes import GAP
from trie.cpu.intrinsics import trailing_zeros
from trie.cpu.jit import inner
from trie.cpu.vectors import marked

_ONES: Final = np.uint32(0xFFFFFFFF)


@inner
def set_bits(mask, low, high):
    """Set the bits [low, high)."""
    if low >= high:
        return
    begin = low >> 5
    end = (high - 1) >> 5
    head = np.uint32(_ONES << np.uint32(low & 31))
    tail = np.uint32(_ONES >> np.uint32(31 - ((high - 1) & 31)))
    if begin == end:
        mask[begin] |= np.uint32(head & tail)
        return
    mask[begin] |= head
    for at in range(begin + 1, end):
        mask[at] = _ONES
    mask[end] |= tail


@inner
def next_set(mask, at, end):
    """The first position in [at, end) whose bit is set, or ``end``."""
    return _next_other(mask, at, end, np.uint32(0))


@inner
def next_clear(mask, at, end):
    """The first position in [at, end) whose bit is clear, or ``end``."""
    return _next_other(mask, at, end, _ONES)


@inner
def _next_other(mask, at, end, word):
    """The first position in [at, end) whose bit differs from that of ``word``, or ``end``."""
    while at < end:
        bits = np.uint32(np.uint32(mask[at >> 5] ^ word) >> np.uint32(at & 31))
        if bits != 0:
            return min(at + np.int64(trailing_zeros(bits)), end)
        at = ((at >> 5) + 1) << 5
    return end


@inner
def clear_bits(mask, low, high):
    """Clear the bits [low, high), at most 32 of them."""
    for at in range(low >> 5, ((high - 1) >> 5) + 1):
        head = np.uint32(_ONES << np.uint32(max(low - 32 * at, 0)))
        tail = np.uint32(_ONES >> np.uint32(31 - min(high - 1 - 32 * at, 31)))
        mask[at] &= np.uint32(~np.uint32(head & tail))


@inner
def open_windows(offsets, k, read, begin, end, starts):
    """Set the starts of the windows in [begin, end), starting with ``read``; 32 | begin.

    Returns the read that continues at ``end``.
    """
    starts[begin >> 5 : (end + 31) >> 5] = np.uint32(0)
    while True:
        set_bits(starts, max(offsets[read], begin), min(offsets[read + 1] - k + 1, end))
        if offsets[read + 1] >= end:
            return read
        read += 1


@inner
def close_around_gaps(bases, k, begin, end, first, stop, starts):
    """Clear the starts in [first, stop) of windows that contain a gap code in [begin, end)."""
    at = begin
    while at < end:
        if at + 64 <= bases.size:
            gaps = marked(bases, at, np.uint8(GAP))
            while gaps != 0:
                gap = at + np.int64(trailing_zeros(gaps))
                if gap < end:
                    clear_bits(starts, max(gap - k + 1, first), min(gap + 1, stop))
                gaps &= gaps - np.uint64(1)
            at += 64
        else:
            if bases[at] == GAP:
                clear_bits(starts, max(at - k + 1, first), min(at + 1, stop))
            at += 1
