"""The text as bit planes in tiles, which the kernel ``bit_sliced`` reads, and distances of hits.

A tile holds 32 S windows in S words. Bit i of word w stands for window i S + w of the tile: 32
segments of S symbols side by side, so that "j symbols on" is "j words on", without a shift.

    planes   uint32[4, tiles * S]   bit i: the symbol there is not base c (a gap code, and what lies
                                    behind the end of the text, is none of them)

    slice      a thread four words: 32 loads of four symbols each, a byte a word; about nine
               operations a load, and twelve bytes a word put together
    distance   a thread a hit: four symbols an exclusive or, about eight operations; the low byte
               of the hit word
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpu.intrinsics import cuda, device_function
from trie.codes import GAP

THREADS = 128
"""Threads a block; any number."""

NO_SYMBOL = GAP + 1
"""What a pattern has in place of a gap code: it equals nothing in a text."""

GAPS = 0x04040404
_ONES = 0x01010101


@device_function
def _four_symbols(codes, symbols, at):  # type: ignore[no-untyped-def]
    """Symbols at .. at + 3, a byte each; gap codes behind the end. 4 | at."""
    if np.uint32(at + np.uint32(4)) <= symbols:
        return codes[np.uint32(at >> np.uint32(2))]
    word = np.uint32(GAPS)
    if at < symbols:
        inside = np.uint32(np.uint32(symbols - at) * np.uint32(8))
        mask = np.uint32(np.uint32(np.uint32(1) << inside) - np.uint32(1))
        read = codes[np.uint32(at >> np.uint32(2))]
        word = np.uint32(np.uint32(read & mask) | np.uint32(word & np.uint32(~mask)))
    return word


@device_function
def _byte_of(a, b, c, d, lane):  # type: ignore[no-untyped-def]
    """Byte ``lane`` of each of four words, a's lowest."""
    shift = np.uint32(np.uint32(8) * lane)
    low = np.uint32(np.uint32(a >> shift) & np.uint32(255))
    low = np.uint32(
        low | np.uint32(np.uint32(np.uint32(b >> shift) & np.uint32(255)) << np.uint32(8))
    )
    high = np.uint32(np.uint32(c >> shift) & np.uint32(255))
    high = np.uint32(
        high | np.uint32(np.uint32(np.uint32(d >> shift) & np.uint32(255)) << np.uint32(8))
    )
    return np.uint32(low | np.uint32(high << np.uint32(16)))


def slice_text(codes, symbols, words, planes):  # type: ignore[no-untyped-def]
    """The kernel; ``[grid, THREADS]``, grid * THREADS * 4 >= planes.shape[1].

    Arguments: codes uint32[] (four symbols a word, the first lowest), symbols uint32, words uint32
    (S, 4 | S), planes uint32[4, tiles * S].
    """
    first = np.uint32(np.uint32(cuda.grid(1)) * np.uint32(4))
    if first >= np.uint32(planes.shape[1]):
        return
    tile = np.uint32(first // words)
    at = np.uint32(np.uint32(tile * words) * np.uint32(31)) + first
    whole = np.uint32(np.uint32(at + np.uint32(np.uint32(31) * words)) + np.uint32(4)) <= symbols
    lows = cuda.local.array(4, np.uint32)
    highs = cuda.local.array(4, np.uint32)
    gaps = cuda.local.array(4, np.uint32)
    for eighth in range(4):
        low = np.uint32(0)
        high = np.uint32(0)
        gap = np.uint32(0)
        for i in range(8):
            here = np.uint32(at + np.uint32(np.uint32(8 * eighth + i) * words))
            if whole:
                read = codes[np.uint32(here >> np.uint32(2))]
            else:
                read = _four_symbols(codes, symbols, here)
            ones = np.uint32(_ONES)
            shift = np.uint32(i)
            low = np.uint32(low | np.uint32(np.uint32(read & ones) << shift))
            high = np.uint32(
                high | np.uint32(np.uint32(np.uint32(read >> np.uint32(1)) & ones) << shift)
            )
            gap = np.uint32(
                gap | np.uint32(np.uint32(np.uint32(read >> np.uint32(2)) & ones) << shift)
            )
        lows[eighth] = low
        highs[eighth] = high
        gaps[eighth] = gap
    for lane in range(4):
        low = _byte_of(lows[0], lows[1], lows[2], lows[3], np.uint32(lane))
        high = _byte_of(highs[0], highs[1], highs[2], highs[3], np.uint32(lane))
        gap = _byte_of(gaps[0], gaps[1], gaps[2], gaps[3], np.uint32(lane))
        to = np.uint32(first + np.uint32(lane))
        planes[0, to] = np.uint32(np.uint32(low | high) | gap)
        planes[1, to] = np.uint32(np.uint32(np.uint32(~low) | high) | gap)
        planes[2, to] = np.uint32(np.uint32(low | np.uint32(~high)) | gap)
        planes[3, to] = np.uint32(np.uint32(np.uint32(~low) | np.uint32(~high)) | gap)


def signature_slice() -> tuple[str, ...]:
    """The argument types of ``slice_text``."""
    return ("uint32[::1]", "uint32", "uint32", "uint32[:,::1]")


def packed(patterns: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """uint8[r, m] patterns, four symbols a word as in a text: uint32[r, ceil(m / 4)].

    A gap code becomes a number that no text has. What lies behind the end does not count.
    """
    count, length = patterns.shape
    symbols = np.full((count, -(-length // 4) * 4), NO_SYMBOL, dtype=np.uint8)
    symbols[:, :length] = np.where(patterns < GAP, patterns, NO_SYMBOL)
    return symbols.view(np.uint32)


def distance(codes, patterns, m, hits, words):  # type: ignore[no-untyped-def]
    """The kernel; ``[grid, THREADS]``, any grid: threads take hits in turns.

    Arguments: codes uint32[] (four symbols a word; a word more than has symbols may be read),
    patterns uint32[r, ceil(m / 4)] (``packed``), m uint32, hits uint32, words uint64[]
    (bit_sliced.py), whose low byte becomes the distance and whose pattern stays an index.
    """
    hit = np.uint32(cuda.grid(1))
    step = np.uint32(cuda.gridsize(1))
    groups = np.uint32(patterns.shape[1])
    behind = np.uint32(np.uint32(groups * np.uint32(4)) - m)
    last = np.uint32(np.uint32(_ONES) >> np.uint32(np.uint32(8) * behind))
    while hit < hits:
        word = words[hit]
        start = np.uint32(word >> np.uint64(36))
        p = np.uint32(np.uint32(word >> np.uint64(8)) & np.uint32((1 << 28) - 1))
        at = np.uint32(start >> np.uint32(2))
        shift = np.uint64(np.uint32(np.uint32(start & np.uint32(3)) * np.uint32(8)))
        count = np.uint32(0)
        here = np.uint64(codes[at])
        group = np.uint32(0)
        while group < groups:
            at = np.uint32(at + np.uint32(1))
            after = np.uint64(codes[at])
            text = np.uint32(np.uint64(here | np.uint64(after << np.uint64(32))) >> shift)
            wrong = np.uint32(text ^ patterns[p, group])
            wrong = np.uint32(
                np.uint32(wrong | np.uint32(wrong >> np.uint32(1)))
                | np.uint32(wrong >> np.uint32(2))
            )
            counted = np.uint32(_ONES)
            group = np.uint32(group + np.uint32(1))
            if group == groups:
                counted = last
            count = np.uint32(count + np.uint32(cuda.popc(np.uint32(wrong & counted))))
            here = after
        words[hit] = np.uint64(word | np.uint64(count))
        hit = np.uint32(hit + step)


def signature_distance() -> tuple[str, ...]:
    """The argument types of ``distance``."""
    return ("uint32[::1]", "uint32[:,::1]", "uint32", "uint32", "uint64[::1]")
