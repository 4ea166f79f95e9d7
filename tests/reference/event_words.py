"""The fields of event words, read as in thesis Fig. 11."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trie.snapshots.tree_bitmap import MAX_INDEX
from trie.snapshots.tree_bitmap import MAX_WORD_NODES as MAX_NODES


class UnpackedEvents(NamedTuple):
    """The fields of n event words, in their order."""

    events: NDArray[np.uint8]
    """1 match, 2 mismatch."""
    starts: NDArray[np.int64]
    """The first symbol of the window in its chunk."""
    nodes: NDArray[np.uint32]
    depths: NDArray[np.uint8]


def unpack_events(words: NDArray[np.uint64]) -> UnpackedEvents:
    """The fields of event words (uint64[n])."""
    words = np.ascontiguousarray(words, dtype=np.uint64)
    depths = words & np.uint64(31)
    index = (words >> np.uint64(32)) & np.uint64(MAX_INDEX - 1)
    return UnpackedEvents(
        events=np.where(words >> np.uint64(63), 2, 1).astype(np.uint8),
        starts=index.astype(np.int64) - depths.astype(np.int64) + 1,
        nodes=((words >> np.uint64(5)) & np.uint64(MAX_NODES - 1)).astype(np.uint32),
        depths=depths.astype(np.uint8),
    )
