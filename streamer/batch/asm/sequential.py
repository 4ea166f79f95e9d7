"""ASM_CPU of the WsPASM paper: the matrix D by equation 1, column by column, cell by cell.

Operations: m cells a symbol, each a comparison and a minimum of three; 4 m bytes of memory. The
only parallelism is that texts may be cut: a thread takes a range of ends, ``reach`` symbols before
it too.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from streamer.batch.asm.found import EndsFound, TooManyError, in_order, joined
from streamer.batch.asm.patterns import Searches
from trie.cpu.jit import njit
from trie.cpu.threads import run_all, split_range


class Sequential:
    """Searches blocks of text for all patterns."""

    block_size = 1 << 20

    def __init__(self, searches: Searches, threads: int) -> None:
        self._searches = searches
        self._threads = threads

    def search(self, codes: NDArray[np.uint8], lead: int, limit: int) -> EndsFound:
        """Every end in (lead, n] with a distance <= k, in the order of rows."""
        searches = self._searches
        parts = split_range(lead, codes.size, self._threads, align=max(1, 4 * searches.reach))
        tasks = [
            partial(_search, codes, low, high, masks, searches.k)
            for masks in searches.masks
            for low, high in parts
        ]
        found = [
            EndsFound(ends, distances, np.full(ends.size, i // len(parts), np.int32))
            for i, (ends, distances) in enumerate(run_all(tasks, self._threads))
        ]
        if sum(map(len, found)) > limit:
            raise TooManyError
        return in_order(joined(found), lead, codes.size)


@njit(cache=True, nogil=True)
def _search(codes, low, high, masks, k):
    """Ends in (low, high] with D <= k, and D there."""
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
