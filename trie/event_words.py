"""The event word of thesis Fig. 11: one uint64 a window, as the kernels of the thesis wrote it.

    bit  63      62 ............ 32   31 ............ 5   4 ... 0
         type    index in the chunk   trie-node           depth
         0 match / 1 mismatch

The index is that of the symbol which decided the event, window start + depth - 1; the node holds
the deepest state reached; the depth is k for a match. A byte a window and an array of depths hold
the same in less memory, so words are made on request only.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from trie.codes import MAX_K
from trie.windows import MISMATCH

MAX_NODES: Final = 1 << 27
MAX_INDEX: Final = 1 << 31

_TYPE: Final = np.uint64(63)
_INDEX: Final = np.uint64(32)
_NODE: Final = np.uint64(5)


class WordOverflowError(ValueError):
    """A field of an event word is too small: ``field`` ("node" or "index") got ``value``."""

    def __init__(self, field: str, value: int, limit: int) -> None:
        self.field = field
        self.value = value
        self.limit = limit
        super().__init__(f"{field} {value} does not fit an event word, it must be below {limit}")


def pack_events(
    events: NDArray[np.uint8], depths: NDArray[np.uint8], nodes: NDArray[np.uint32]
) -> NDArray[np.uint64]:
    """The event words of a chunk, one a window, in window order (thesis Fig. 11).

    ``events`` (0 no window, 1 match, 2 mismatch), ``depths`` and ``nodes`` hold one element a
    symbol of the chunk, as ``trie.snapshots.walk.walk`` returns them. Raises WordOverflowError for
    a node of 2**27 or more or an index of 2**31 or more, ValueError for arrays of different lengths
    or a depth outside 1..31.
    """
    if not events.shape == depths.shape == nodes.shape or events.ndim != 1:
        message = f"{events.shape} events, {depths.shape} depths, {nodes.shape} nodes"
        raise ValueError(message)
    starts = np.flatnonzero(events)
    depth = depths[starts].astype(np.uint64)
    node = nodes[starts].astype(np.uint64)
    if depth.size and (int(depth.min()) < 1 or int(depth.max()) > MAX_K):
        message = f"the depth of an event must lie in 1..{MAX_K}"
        raise ValueError(message)
    index = starts.astype(np.uint64) + depth - np.uint64(1)
    _check("node", node, MAX_NODES)
    _check("index", index, MAX_INDEX)
    kind = (events[starts] == MISMATCH).astype(np.uint64)
    return (kind << _TYPE) | (index << _INDEX) | (node << _NODE) | depth


def _check(field: str, values: NDArray[np.uint64], limit: int) -> None:
    if values.size and int(values.max()) >= limit:
        raise WordOverflowError(field, int(values.max()), limit)
