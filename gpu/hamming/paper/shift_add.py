"""The kernel ``shift-add`` (PMASM paper, Table 3): a thread per piece of text, for all patterns.

The method is that of streamer/batch/hamming/shift_add.py: a field of b bits for each prefix of the
pattern, shifted by a field and incremented at every symbol; overflow goes to a second word. A
thread begins m - 1 symbols before its piece ends its first window. The paper does not say how it
divides the text; a piece of 64 windows keeps the warm-up of short patterns below a fifth.

Operations per symbol and pattern: 7 for each word of the state (m b <= 64: one word), and a load.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gpu.card.intrinsics import cuda

THREADS = 128  # threads per block; any number
PIECE = 64  # windows per thread


def shift_add(words: int) -> Callable[..., None]:
    """The kernel for states of that many words."""

    def kernel(codes, windows, add, ids, m, k, bits, fields, results):
        """``[grid, THREADS]``, grid * THREADS * PIECE >= windows.

        Arguments: codes uint8[windows + m - 1], windows uint32, add uint64[r, 5, words], ids (the
        patterns, by number) uint32, m, k, bits, fields uint32, results int32[r, windows].
        """
        first = np.uint32(np.uint32(cuda.grid(1)) * np.uint32(PIECE))
        if first >= windows:
            return
        stop = min(np.uint32(first + np.uint32(PIECE)), windows)
        b = np.uint64(bits)
        top = np.uint64(np.uint64(1) << np.uint64(b - np.uint64(1)))
        field = np.uint64(np.uint64(top << np.uint64(1)) - np.uint64(1))
        tops = np.uint64(0)
        for i in range(fields):
            tops = np.uint64(tops | np.uint64(top << np.uint64(b * np.uint64(i))))
        highest = np.uint64(b * np.uint64(np.uint32(fields) - np.uint32(1)))
        used = np.uint64(~np.uint64(0)) >> np.uint64(
            np.uint64(64) - np.uint64(b * np.uint64(fields))
        )
        last = np.uint64(b * np.uint64(np.uint32(m - np.uint32(1)) % np.uint32(fields)))
        state = cuda.local.array(words, np.uint64)
        overflow = cuda.local.array(words, np.uint64)
        for p in range(ids):
            for w in range(words):
                state[w] = np.uint64(0)
                overflow[w] = np.uint64(0)
            for at in range(first, np.uint32(stop + m) - np.uint32(1)):
                code = codes[at]
                carried = np.uint64(0)
                carried_over = np.uint64(0)
                for w in range(words):
                    old = state[w]
                    over = overflow[w]
                    new = np.uint64(np.uint64(np.uint64(old << b) & used) | carried)
                    new = np.uint64(new + add[p, code, w])
                    shifted = np.uint64(np.uint64(np.uint64(over << b) & used) | carried_over)
                    overflow[w] = np.uint64(shifted | np.uint64(new & tops))
                    state[w] = np.uint64(new & np.uint64(~tops))
                    carried = np.uint64(np.uint64(old >> highest) & field)
                    carried_over = np.uint64(np.uint64(over >> highest) & field)
                if np.uint32(at + np.uint32(1)) >= np.uint32(first + m):
                    start = np.uint32(np.uint32(at + np.uint32(1)) - m)
                    ran_over = np.uint64(np.uint64(overflow[words - 1] >> last) & field)
                    distance = np.uint64(np.uint64(state[words - 1] >> last) & field)
                    near = ran_over == np.uint64(0) and distance <= np.uint64(k)
                    results[p, start] = np.int32(start) if near else np.int32(-1)

    return kernel
