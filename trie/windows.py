"""Windows of a batch of reads: rolling k-mer codes, a block at a time, in buffers that fit in L1.

A batch is ``bases`` uint8[total] (base codes, 4 = gap, all reads concatenated) and ``offsets``
int64[reads + 1], the first symbol of each read and then the total. A window is k consecutive
symbols of one read without a gap code (thesis 3.3.1).

Cost per symbol: one byte read, about ten integer operations in two independent dependency chains of
three (forward and reverse complement code), two 8-byte stores into L1; no branch but the loop's,
since a symbol that ends no window leaves the block's count unchanged.

Where windows start is one bit per symbol: bit s % 32 of word s / 32 of a uint32 array. Bits are set
a word at a time, read by read, then cleared before gap codes.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from trie.codes import GAP, check_k
from trie.cpu.intrinsics import trailing_zeros
from trie.cpu.jit import inner, njit
from trie.cpu.threads import run_ranges
from trie.cpu.vectors import marked

MATCH: Final = np.uint8(1)
MISMATCH: Final = np.uint8(2)  # events at the first symbol of a window; 0 where none begins

NO_SET: Final = np.uint32(0xFFFFFFFF)
"""Stands for the number of a set of targets: the k-mer belongs to none."""

BLOCK: Final = 128
"""Most windows in a block: 2 KB of codes and positions, 128 cache lines prefetched together."""

GRAIN: Final = 1 << 14  # symbols worth a thread

# state between blocks: next symbol, its read, symbols since a gap or read start, both codes
_SYMBOL, _READ, _RUN, _FORWARD, _REVERSE = range(5)
STATE_WORDS: Final = 5


class BatchShapeError(ValueError):
    """The offsets of a batch do not describe its bases."""


def check_batch(
    bases: NDArray[np.uint8], offsets: NDArray[np.int64]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The batch as contiguous arrays of the right types; BatchShapeError if it is not a batch."""
    bases = np.ascontiguousarray(bases, dtype=np.uint8)
    offsets = np.ascontiguousarray(offsets, dtype=np.int64)
    if bases.ndim != 1 or offsets.ndim != 1 or offsets.size == 0:
        raise BatchShapeError("a batch is a one-dimensional array of bases and at least one offset")
    if offsets[0] != 0 or offsets[-1] != bases.size or not ascending(offsets):
        raise BatchShapeError(f"offsets must ascend from 0 to the number of bases, {bases.size}")
    return bases, offsets


@njit(cache=True)  # so short that releasing the GIL takes longer
def ascending(offsets):
    """Whether no number is smaller than the one before it."""
    for i in range(1, offsets.size):
        if offsets[i] < offsets[i - 1]:
            return False
    return True


@njit(cache=True, nogil=True)
def read_at(offsets, symbol):
    """The last read that begins at or before a symbol; the number of reads if past the end."""
    low = 0
    high = offsets.size - 1
    while low < high:
        middle = (low + high + 1) >> 1
        if offsets[middle] <= symbol:
            low = middle
        else:
            high = middle - 1
    return low


@njit(cache=True, nogil=True)
def start_state(offsets, start):
    """The initial state for rolling over the windows that begin at symbol ``start`` or later."""
    state = np.zeros(STATE_WORDS, dtype=np.uint64)
    state[_SYMBOL] = start
    state[_READ] = read_at(offsets, np.int64(start))
    return state


@njit(cache=True, nogil=True)
def start_roll(offsets, start):
    """``start_state``, plus buffers for a block's codes and positions (uint64[BLOCK])."""
    codes = np.empty(BLOCK, dtype=np.uint64)
    positions = np.empty(BLOCK, dtype=np.uint64)
    return start_state(offsets, start), codes, positions


@njit(cache=True, nogil=True)
def roll_block(bases, offsets, k, canonical, stop, state, codes, positions):
    """Roll over up to BLOCK symbols before ``stop``; returns how many windows end there.

    ``codes`` and ``positions`` (uint64[BLOCK], or another length, which then sets the block size)
    receive the (canonical) code and the first symbol of each window, in stream order.
    """
    one = np.uint64(1)
    two = np.uint64(2)
    three = np.uint64(3)
    width = np.uint64(k)
    mask = (one << (two * width)) - one
    top = two * width - two
    # forward only: a reverse code of all ones is never the smaller of the two
    unused = np.uint64(0) if canonical else ~np.uint64(0)
    i = state[_SYMBOL]
    read = state[_READ]
    run = state[_RUN]
    forward = state[_FORWARD]
    reverse = state[_REVERSE]
    end = min(i + np.uint64(codes.size), np.uint64(stop))
    count = np.uint64(0)
    while i < end:
        border = np.uint64(offsets[read + one])
        if border <= i:
            read += one
            run = np.uint64(0)
            continue
        for at in range(i, min(border, end)):
            symbol = np.uint64(bases[at])
            base = symbol & three
            forward = ((forward << two) | base) & mask
            reverse = (reverse >> two) | ((three - base) << top)
            run = np.uint64(0) if symbol > three else run + one
            codes[count] = min(forward, reverse | unused)
            positions[count] = at + one - width
            count += np.uint64(run >= width)
        i = min(border, end)
    state[_SYMBOL] = i
    state[_READ] = read
    state[_RUN] = run
    state[_FORWARD] = forward
    state[_REVERSE] = reverse
    return count


def window_codes(
    bases: NDArray[np.uint8], offsets: NDArray[np.int64], k: int, *, canonical: bool
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """The codes (uint64) and first symbols (int64) of all windows of a batch, in stream order."""
    check_k(k)
    bases, offsets = check_batch(bases, offsets)
    codes = np.empty(bases.size, dtype=np.uint64)
    positions = np.empty(bases.size, dtype=np.int64)
    count = _all_windows(bases, offsets, k, canonical, codes, positions.view(np.uint64))
    return codes[:count], positions[:count]


@njit(cache=True, nogil=True)
def _all_windows(bases, offsets, k, canonical, codes, positions):
    """Roll over the batch as one block."""
    state = start_state(offsets, np.uint64(0))
    return roll_block(bases, offsets, k, canonical, bases.size, state, codes, positions)


@njit(cache=True, nogil=True)
def codes_at(bases, starts, k):
    """uint64: the codes of the windows of k symbols at those starts; none contains a gap code."""
    codes = np.empty(starts.size, dtype=np.uint64)
    for j in range(starts.size):
        code = np.uint64(0)
        for i in range(k):
            code = (code << np.uint64(2)) | np.uint64(bases[starts[j] + i])
        codes[j] = code
    return codes


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


def window_starts(
    bases: NDArray[np.uint8], offsets: NDArray[np.int64], k: int, *, threads: int = 1
) -> NDArray[np.uint32]:
    """A bit for each symbol of a batch at which a window starts; two words at least."""
    bases, offsets = check_batch(bases, offsets)
    starts = np.zeros(max(-(-bases.size // 32), 2), np.uint32)

    def put(first: int, stop: int) -> None:
        _put_starts(bases, offsets, k, first, stop, starts)

    run_ranges(put, 0, bases.size, threads, grain=GRAIN, align=64)
    return starts


@njit(cache=True, nogil=True)
def _put_starts(bases, offsets, k, first, stop, starts):
    open_windows(offsets, k, read_at(offsets, first), first, stop, starts)
    close_around_gaps(bases, k, first, min(stop + k - 1, bases.size), first, stop, starts)


@njit(cache=True, nogil=True)
def clear_at(mask, places):
    """Clear the bits at those places."""
    for place in places:
        mask[place >> 5] &= ~(np.uint32(1) << np.uint32(place & 31))
