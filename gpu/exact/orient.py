"""Canonical matching for the kernels that read the stream symbol by symbol (naive, shuffle).

A canonical window is the smaller of its code and that of its reverse complement, but a state
machine can only follow the direction in which it reads. So the stream is read twice: forward for
the windows whose own code is the smaller (or equal), and as its reverse complement for the others.
Symbol r of the mirrored stream is the complement of symbol n - 1 - r, and the window at s becomes
the one at n - k - s. Each window starts in exactly one of the two.

    split   one thread per symbol: two start masks, and the mirrored stream  (two ballots)
    merge   one thread per symbol: the mirrored matches back in place        (one ballot)
"""

from __future__ import annotations

import numpy as np

from gpu.card.intrinsics import ALL_LANES, cuda
from gpu.exact.window_bits import (
    bit_of,
    first_symbols,
    reverse_complement_left,
    symbol_of,
    window_at,
)

THREADS = 256  # threads per block; any multiple of 32


def split(bases, starts, symbols, k, forward, mirrored_bases, mirrored):
    """The kernel; at least 32 W threads, 32 | block.

    Arguments: bases uint32[], starts uint32[W], symbols uint32, k uint32, forward uint32[W],
    mirrored_bases uint32[] (as many as bases), mirrored uint32[W].
    """
    thread = np.uint32(cuda.grid(1))
    word = np.uint32(thread >> np.uint32(5))
    if word >= np.uint32(starts.size):
        return  # the whole warp
    straight = False
    if bit_of(starts, thread):
        window = window_at(bases, thread)
        straight = first_symbols(window, k) <= reverse_complement_left(window, k)
    turned = False
    if np.uint32(thread + k) <= symbols:
        start = np.uint32(symbols - np.uint32(thread + k))
        if bit_of(starts, start):
            window = window_at(bases, start)
            turned = first_symbols(window, k) > reverse_complement_left(window, k)
    straight_bits = np.uint32(cuda.ballot_sync(ALL_LANES, straight))
    turned_bits = np.uint32(cuda.ballot_sync(ALL_LANES, turned))
    if np.uint32(thread & np.uint32(31)) == np.uint32(0):
        forward[word] = straight_bits
        mirrored[word] = turned_bits
    if np.uint32(thread & np.uint32(15)) == np.uint32(0):
        value = np.uint32(0)
        for i in range(16):
            at = np.uint32(thread + np.uint32(i))
            value = np.uint32(value << np.uint32(2))
            if at < symbols:
                symbol = symbol_of(bases, np.uint32(np.uint32(symbols - np.uint32(1)) - at))
                value = np.uint32(value | np.uint32(np.uint32(3) - symbol))
        mirrored_bases[np.uint32(thread >> np.uint32(4))] = value


def merge(mirrored, symbols, k, matches):
    """The kernel; launch as ``split``.

    Arguments: mirrored uint32[W], symbols uint32, k uint32, matches uint32[W].
    """
    thread = np.uint32(cuda.grid(1))
    word = np.uint32(thread >> np.uint32(5))
    if word >= np.uint32(matches.size):
        return  # the whole warp
    matched = False
    if np.uint32(thread + k) <= symbols:
        start = np.uint32(symbols - np.uint32(thread + k))
        matched = bit_of(mirrored, start) != np.uint32(0)
    bits = np.uint32(cuda.ballot_sync(ALL_LANES, matched))
    if np.uint32(thread & np.uint32(31)) == np.uint32(0):
        matches[word] = np.uint32(matches[word] | bits)
