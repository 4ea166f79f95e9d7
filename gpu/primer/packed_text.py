"""The text in the two forms that the other kernels read.

    words        4 bits a symbol, 8 symbols per uint32, the first lowest: 0-3, 4 a gap, 5 between
                 records and after the last
    low, high    the bits of the symbols, 32 symbols a uint32, the first in the top bit. A gap or a
                 separator becomes some pseudorandom letter: readers of these planes look for
                 candidates, and a long run of gaps must not look like a run of A

With both strands the reverse complement follows, at a multiple of TILE columns: it is computed on
the GPU and never crosses the bus.
"""

from __future__ import annotations

import numpy as np

from gpu.card.intrinsics import cuda

THREADS = 256
TILE = 64  # a strand of the text is a multiple of this many columns


def pack(codes, strand, words, low, high):
    """The kernel; ``[grid, THREADS]``, one thread per 32 columns.

    codes uint8[n], strand int64 (columns of a strand, a multiple of TILE), words uint32[], low and
    high uint32[l] (out). Columns from ``strand`` on are the reverse complement, if there is room.
    """
    at = np.int64(cuda.grid(1))
    if at >= low.size:
        return
    low_bits = np.uint32(0)
    high_bits = np.uint32(0)
    word = np.uint32(0)
    for i in range(32):
        column = np.int64(np.int64(32) * at + np.int64(i))
        turned = column >= strand
        source = column
        if turned:
            source = np.int64(np.int64(codes.size) - np.int64(1) - np.int64(column - strand))
        symbol = np.uint32(5)
        if np.int64(0) <= source and source < np.int64(codes.size):
            symbol = np.uint32(codes[source])
            if turned and symbol < np.uint32(4):
                symbol = np.uint32(np.uint32(3) - symbol)
        letter = symbol
        if symbol > np.uint32(3):
            mixed = np.uint32(np.uint32(column) * np.uint32(0x9E3779B1))
            letter = np.uint32(np.uint32(mixed ^ np.uint32(mixed >> np.uint32(15))) >> np.uint32(9))
        low_bits = np.uint32(np.uint32(low_bits << np.uint32(1)) | np.uint32(letter & np.uint32(1)))
        letter = np.uint32(np.uint32(letter >> np.uint32(1)) & np.uint32(1))
        high_bits = np.uint32(np.uint32(high_bits << np.uint32(1)) | letter)
        word = np.uint32(word | np.uint32(symbol << np.uint32(4 * (i & 7))))
        if i & 7 == 7:
            words[4 * at + (i >> 3)] = word
            word = np.uint32(0)
    low[at] = low_bits
    high[at] = high_bits
