"""Where the hits of each block go in a list: prefix sums of the counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpu.card.intrinsics import cuda
from gpu.card.launch import made
from gpu.card.workspace import Workspace

THREADS = 256  # threads of the block; any number


def sums_before(threads: int) -> Callable[..., None]:
    """The kernel ``[1, threads]``; each thread sums a range.

    Arguments: counts int64[searches * blocks], blocks, searches int64, out int64[searches * blocks
    + 1], begins int64[searches + 1]: out at the first block of each search, and the sum of all.
    """

    def kernel(counts, blocks, searches, out, begins):
        sums = cuda.shared.array(threads, np.int64)
        thread = cuda.threadIdx.x
        size = blocks * searches
        stretch = (size + threads - 1) // threads
        first = min(thread * stretch, size)
        stop = min(first + stretch, size)
        total = np.int64(0)
        for i in range(first, stop):
            total += counts[i]
        sums[thread] = total
        cuda.syncthreads()
        if thread == 0:
            total = np.int64(0)
            for i in range(threads):
                here = sums[i]
                sums[i] = total
                total += here
            out[size] = total
            begins[searches] = total
        cuda.syncthreads()
        total = sums[thread]
        for i in range(first, stop):
            out[i] = total
            if i % blocks == 0:
                begins[i // blocks] = total
            total += counts[i]

    return kernel


def places_of(counts: Any, blocks: int, searches: int, space: Workspace) -> tuple[Any, Any]:
    """``out`` and ``begins`` of ``sums_before`` for counts int64[searches * blocks]."""
    out = space.array("places", searches * blocks + 1, np.int64)
    begins = space.array("begins", searches + 1, np.int64, exact=True)
    made(sums_before, THREADS)[1, THREADS, space.stream](counts, blocks, searches, out, begins)
    return out, begins
