"""ASM_CPU of the WsPASM paper: the matrix D by equation 1, column by column, cell by cell.

Operations: m cells per symbol, each a comparison and a minimum of three; 4 m bytes of memory. The
only parallelism is cutting texts: a thread takes a range of ends, and ``reach`` symbols before it.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from streamer.batch.asm.blocks import EndsFound
from streamer.batch.asm.pattern_masks import Searches
from trie.cpu.jit import njit
from trie.cpu.threads import run_all, split_range


def find(codes: NDArray[np.uint8], lead: int, searches: Searches, threads: int) -> list[EndsFound]:
    """Find every end in (lead, n] with a distance <= k, by search."""
    parts = split_range(lead, codes.size, threads, align=max(1, 4 * searches.reach))
    tasks = [
        partial(_find, codes, low, high, masks, searches.k)
        for masks in searches.masks
        for low, high in parts
    ]
    return [
        EndsFound(ends, distances, np.full(ends.size, i // len(parts), np.int32))
        for i, (ends, distances) in enumerate(run_all(tasks, threads))
    ]


@njit(cache=True, nogil=True)
def _find(codes, low, high, masks, k):
    """Find the ends in (low, high] with D <= k, and D there."""
    rows = masks.size
    column = np.arange(rows + 1).astype(np.int32)
    ends = np.empty(high - low, np.int64)
    distances = np.empty(high - low, np.int32)
    found = 0
    for j in range(max(0, low - rows - k), high):
        code = codes[j]
        diagonal = column[0]
        for i in range(1, rows + 1):
            if masks[i - 1] >> code & 1:
                value = diagonal
            else:
                value = 1 + min(column[i - 1], min(column[i], diagonal))
            diagonal = column[i]
            column[i] = value
        if column[rows] <= k and j >= low:
            ends[found] = j + 1
            distances[found] = column[rows]
            found += 1
    return ends[:found].copy(), distances[:found].copy()
