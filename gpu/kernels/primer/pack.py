"""The text in 4 bits a symbol, 8 symbols a uint32, the first lowest; what follows its end is 5."""

from __future__ import annotations

import numpy as np

from gpu.intrinsics import cuda

THREADS = 256

SIGNATURE = ("uint8[::1]", "uint32[::1]")


def pack(codes, words):  # type: ignore[no-untyped-def]
    """The kernel; ``[grid, THREADS]``, a thread a word. codes uint8[n], words uint32[w] (out)."""
    at = np.int64(cuda.grid(1))
    if at >= words.size:
        return
    word = np.uint32(0)
    for i in range(8):
        symbol = np.uint32(5)
        if 8 * at + i < codes.size:
            symbol = np.uint32(codes[8 * at + i])
        word = np.uint32(word | np.uint32(symbol << np.uint32(4 * i)))
    words[at] = word
