"""Cut a batch of reads into chunks of the stream (thesis 3.3.5, Fig. 10).

A chunk is at most ``chunk`` consecutive symbols of the stream. Where a cut falls inside a read the
next chunk starts k-1 symbols before it, so that every window lies in exactly one chunk; it never
reaches back into another read.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trie.cpu.jit import njit


def chunk_bounds(
    offsets: NDArray[np.int64], k: int, chunk: int, start: int = 0, stop: int | None = None
) -> NDArray[np.int64]:
    """int64[chunks, 2]: the first symbol of each chunk and the one after its last.

    offsets: int64[reads + 1] of the batch; only symbols in [start, stop) are cut up.
    """
    stop = int(offsets[-1]) if stop is None else stop
    # machine integers from here on: a chunk of any length holds no more than everything
    chunk = min(chunk, max(stop - start, k))
    longest = (stop - start) // max(chunk - k + 1, 1) + offsets.size + 1
    bounds = np.empty((longest, 2), dtype=np.int64)
    return bounds[: _cut(offsets, k, chunk, start, stop, bounds)]


@njit(cache=True, nogil=True)
def _cut(offsets, k, chunk, start, stop, bounds):
    count = 0
    read = 0
    while start < stop:
        end = min(start + chunk, stop)
        bounds[count, 0] = start
        bounds[count, 1] = end
        count += 1
        if end == stop:
            break
        while offsets[read + 1] <= end:
            read += 1
        start = max(end - (k - 1), offsets[read])
    return count


def slice_reads(offsets: NDArray[np.int64], start: int, stop: int) -> NDArray[np.int64]:
    """Offsets of the (parts of) reads inside symbols [start, stop), counted from ``start``."""
    first = int(np.searchsorted(offsets, start, side="right")) - 1
    last = int(np.searchsorted(offsets, stop, side="left"))
    return np.clip(offsets[first : last + 1], start, stop) - start
