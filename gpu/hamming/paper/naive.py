"""The kernel ``naive`` (PMASM paper, Table 3): a thread a window, every symbol of every pattern.

r m comparisons a window; the text is read r m times, from the caches for the most part.
"""

from __future__ import annotations

import numpy as np

from gpu.card.intrinsics import cuda

THREADS = 256  # threads a block; any number


def naive(codes, windows, patterns, k, results):
    """The kernel; ``[grid, THREADS]``, grid * THREADS >= windows.

    Arguments: codes uint8[windows + m - 1], windows uint32, patterns uint8[r, m] (gap codes as a
    number that no text has), k uint32, results int32[r, windows].
    """
    start = np.uint32(cuda.grid(1))
    if start >= windows:
        return
    for p in range(patterns.shape[0]):
        distance = np.uint32(0)
        for j in range(patterns.shape[1]):
            if codes[start + np.uint32(j)] != patterns[p, j]:
                distance = np.uint32(distance + np.uint32(1))
        results[p, start] = np.int32(start) if distance <= k else np.int32(-1)
