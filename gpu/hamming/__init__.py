"""Search with k mismatches on the GPU: from a chunk of text to ascending hit words."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.hamming.paper import TableSearcher
from gpu.hamming.plane_search import CHUNKS, BitSliced, Pigeonhole, PlaneSearcher


def searcher_for(
    method: str,
    patterns: NDArray[np.uint8],
    ids: NDArray[np.uint64],
    k: int,
    index: Any = None,
    most: int = CHUNKS[1],
) -> PlaneSearcher | TableSearcher:
    """A searcher for patterns uint8[r, m] on the current device.

    ids: uint64[r], ascending, shifted to their place in a hit word. index: for ``pigeonhole``
    (streamer/batch/hamming/pigeonhole.py). most: most windows in a chunk.
    """
    if method == "pigeonhole":
        return PlaneSearcher(Pigeonhole(patterns, k, index), patterns.shape, ids, most)
    if method == "bit-sliced":
        return PlaneSearcher(BitSliced(patterns, k), patterns.shape, ids, most)
    return TableSearcher(method, patterns, ids, k, most)
