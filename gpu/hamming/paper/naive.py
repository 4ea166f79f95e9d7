"""The kernel ``naive`` (PMASM paper, Table 3): one thread per window, all symbols of all patterns.

r m comparisons per window; the text is read r m times, mostly from the caches.
"""

from __future__ import annotations

import numpy as np

from gpu.card.intrinsics import cuda

THREADS = 256  # threads per block; any number


def naive(codes, windows, patterns, k, results):
    """The kernel; ``[grid, THREADS]``, grid * THREADS >= windows.

    Arguments: codes uint8[windows + m - 1], windows uint32, patterns uint8[r, m] (gap codes as a
    value that occurs in no text), k uint32, results int32[r, windows].
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
