"""The primer paper's two CUDA solutions (section 4): baselines for the other methods.

One block per start, in batches as large as memory allows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.card.budget import free_memory
from gpu.card.intrinsics import cuda
from gpu.card.launch import made
from gpu.primer.paper import alternative, conventional

BLOCK_THREADS = 256
"""Threads per block: the paper's best (Fig. 9)."""

PREFETCH_FACTOR = 3  # the constant c of section 4.2 that missed nothing (Table 4)
ROW_BYTES = 4 << 30  # the most memory for the rows of D between tiles


def longest_prefixes(
    method: str, alpha: NDArray[np.uint8], beta: NDArray[np.uint8], k: int,
    starts: NDArray[np.int64], *, threads: int = BLOCK_THREADS, factor: int = PREFETCH_FACTOR,
    counted: bool = False,
) -> tuple[NDArray[np.int32], NDArray[np.uint64]]:  # fmt: skip
    """The longest prefix c of every start (int32), and counts (uint64[5], see the kernel).

    ``method`` is conventional (optimizations 1, 3, 4, 5) or alternative (3, 4, 5, 6); alpha and
    beta are one record each. ``threads``: per block, a power of two, at least 32. ``factor`` is c
    of section 4.2; ``counted`` counts misses of the prefetch.
    """
    codes, text = cuda.to_device(alpha), cuda.to_device(beta)
    lengths = np.empty(starts.size, dtype=np.int32)
    counts = cuda.to_device(np.zeros(5, dtype=np.uint64))
    row_bytes = min(ROW_BYTES, free_memory() // 2)
    batch = max(1, min(starts.size, row_bytes // (4 * (beta.size + 1)), 1 << 16))
    rows: Any = None
    if method == "conventional":
        rows = cuda.device_array((batch, beta.size + 1), np.int32)
    for at in range(0, starts.size, batch):
        some = cuda.to_device(starts[at : at + batch])
        found = cuda.device_array(some.size, np.int32)
        if method == "conventional":
            made(conventional.kernel, threads)[some.size, threads](
                codes, text, np.int32(k), some, rows, found, counts[:1]
            )
        else:
            made(alternative.kernel, threads, k, factor, counted)[some.size, threads](
                codes, text, np.int32(k), some, found, counts
            )
        found.copy_to_host(lengths[at : at + batch])
    return lengths, counts.copy_to_host()
