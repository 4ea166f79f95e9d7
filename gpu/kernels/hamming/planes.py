"""The text as bit planes in tiles, which the kernel ``bit_sliced`` reads, and distances of hits.

A tile holds 32 S windows in S words. Bit i of word w stands for window i S + w of the tile: 32
segments of S symbols side by side, so that "j symbols on" is "j words on", without a shift.

    planes   uint32[4, tiles * S]   bit i: the symbol there is not base c (a gap code, and what lies
                                    behind the end of the text, is none of them)

    slice      a thread four words: 32 loads of four symbols each, a byte lane a word; three
               operations a load and bit of the code, then four bytes a lane are put together
    distance   a thread a hit: m comparisons; the low byte of the hit word
"""

from __future__ import annotations

import numpy as np

from gpu.intrinsics import cuda, device_function

THREADS = 128
"""Threads a block; any number."""

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


@device_function
def _eight(codes, symbols, at, words, bit):  # type: ignore[no-untyped-def]
    """Bit ``bit`` of the codes of four words in eight segments from ``at`` on, a byte a word."""
    gathered = np.uint32(0)
    for i in range(8):
        read = _four_symbols(codes, symbols, np.uint32(at + np.uint32(np.uint32(i) * words)))
        plane = np.uint32(np.uint32(read >> bit) & np.uint32(_ONES))
        gathered = np.uint32(gathered | np.uint32(plane << np.uint32(i)))
    return gathered


def slice_text(codes, symbols, words, planes):  # type: ignore[no-untyped-def]
    """The kernel; ``[grid, THREADS]``, grid * THREADS * 4 >= planes.shape[1].

    Arguments: codes uint32[] (four symbols a word, the first lowest), symbols uint32, words uint32
    (S, 4 | S), planes uint32[4, tiles * S].
    """
    first = np.uint32(np.uint32(cuda.grid(1)) * np.uint32(4))
    if first >= np.uint32(planes.shape[1]):
        return
    tile = np.uint32(first // words)
    at = np.uint32(np.uint32(tile * words) * np.uint32(32))
    at = np.uint32(at + np.uint32(first - np.uint32(tile * words)))
    eighth = np.uint32(np.uint32(8) * words)
    second = np.uint32(at + eighth)
    third = np.uint32(second + eighth)
    fourth = np.uint32(third + eighth)
    one, two, four = np.uint32(0), np.uint32(1), np.uint32(2)
    a0 = _eight(codes, symbols, at, words, one)
    b0 = _eight(codes, symbols, second, words, one)
    c0 = _eight(codes, symbols, third, words, one)
    d0 = _eight(codes, symbols, fourth, words, one)
    a1 = _eight(codes, symbols, at, words, two)
    b1 = _eight(codes, symbols, second, words, two)
    c1 = _eight(codes, symbols, third, words, two)
    d1 = _eight(codes, symbols, fourth, words, two)
    a2 = _eight(codes, symbols, at, words, four)
    b2 = _eight(codes, symbols, second, words, four)
    c2 = _eight(codes, symbols, third, words, four)
    d2 = _eight(codes, symbols, fourth, words, four)
    for lane in range(4):
        low = _byte_of(a0, b0, c0, d0, np.uint32(lane))
        high = _byte_of(a1, b1, c1, d1, np.uint32(lane))
        gap = _byte_of(a2, b2, c2, d2, np.uint32(lane))
        to = np.uint32(first + np.uint32(lane))
        planes[0, to] = np.uint32(np.uint32(low | high) | gap)
        planes[1, to] = np.uint32(np.uint32(np.uint32(~low) | high) | gap)
        planes[2, to] = np.uint32(np.uint32(low | np.uint32(~high)) | gap)
        planes[3, to] = np.uint32(np.uint32(np.uint32(~low) | np.uint32(~high)) | gap)


def signature_slice() -> tuple[str, ...]:
    """The argument types of ``slice_text``."""
    return ("uint32[::1]", "uint32", "uint32", "uint32[:,::1]")


def distance(codes, patterns, hits, words):  # type: ignore[no-untyped-def]
    """The kernel; ``[grid, THREADS]``, any grid: threads take hits in turns.

    Arguments: codes uint8[], patterns uint8[r, m] (gap codes as a number that no text has), hits
    uint32, words uint64[] (bit_sliced.py), whose low byte becomes the distance and whose pattern
    stays an index.
    """
    hit = np.uint32(cuda.grid(1))
    step = np.uint32(cuda.gridsize(1))
    while hit < hits:
        word = words[hit]
        start = np.uint32(word >> np.uint64(36))
        p = np.uint32(np.uint32(word >> np.uint64(8)) & np.uint32((1 << 28) - 1))
        count = np.uint32(0)
        for j in range(patterns.shape[1]):
            if codes[np.uint32(start + np.uint32(j))] != patterns[p, j]:
                count = np.uint32(count + np.uint32(1))
        words[hit] = np.uint64(word | np.uint64(count))
        hit = np.uint32(hit + step)


def signature_distance() -> tuple[str, ...]:
    """The argument types of ``distance``."""
    return ("uint8[::1]", "uint8[:,::1]", "uint32", "uint64[::1]")
