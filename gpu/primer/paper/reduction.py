"""Optimization 3 (section 4): the highest row that any thread of a block has found."""

from __future__ import annotations

import numpy as np

from gpu.card.intrinsics import cuda, device_function


@device_function
def store_highest(highest, t, threads, lengths, block):
    """lengths[block] = the maximum of ``highest``, int32[threads] in shared memory.

    Called by all threads of the block, t of ``threads``, a power of two.
    """
    cuda.syncthreads()
    half = np.int32(threads // 2)
    while half > 0:
        if t < half:
            highest[t] = max(highest[t], highest[t + half])
        cuda.syncthreads()
        half = np.int32(half // np.int32(2))
    if t == 0:
        lengths[block] = highest[0]
