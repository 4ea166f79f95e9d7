"""The event word of thesis Fig. 11: one uint64 per window, as the thesis's kernels write it.

    bit  63      62 ............ 32   31 ............ 5   4 ... 0
         type    index in the chunk   trie-node           depth
         0 match / 1 mismatch

The index is that of the symbol that decided the event, window start + depth - 1; the node holds the
deepest state reached; the depth is k for a match. One byte per window and an array of depths hold
the same in less memory, so words are made only on request.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from trie.windows import MISMATCH

MAX_NODES: Final = 1 << 27
MAX_INDEX: Final = 1 << 31

_TYPE: Final = np.uint64(63)
_INDEX: Final = np.uint64(32)
_NODE: Final = np.uint64(5)


class WordOverflowError(ValueError):
    """A node or index does not fit its field of an event word."""

    def __init__(self, field: str, value: int, limit: int) -> None:
        super().__init__(f"{field} {value} does not fit an event word, it must be below {limit}")


def pack_events(
    events: NDArray[np.uint8], depths: NDArray[np.uint8], nodes: NDArray[np.uint32]
) -> NDArray[np.uint64]:
    """The event words of a chunk, one per window, in window order (thesis Fig. 11).

    ``events`` (0 no window, 1 match, 2 mismatch), ``depths`` and ``nodes`` hold one element per
    symbol of the chunk, as ``trie.snapshots.walk.walk`` returns them. Raises WordOverflowError for
    a node of 2**27 or more or an index of 2**31 or more.
    """
    starts = np.flatnonzero(events)
    depth = depths[starts].astype(np.uint64)
    node = nodes[starts].astype(np.uint64)
    index = starts.astype(np.uint64) + depth - np.uint64(1)
    _check("node", node, MAX_NODES)
    _check("index", index, MAX_INDEX)
    kind = (events[starts] == MISMATCH).astype(np.uint64)
    return (kind << _TYPE) | (index << _INDEX) | (node << _NODE) | depth


def _check(field: str, values: NDArray[np.uint64], limit: int) -> None:
    if values.size and int(values.max()) >= limit:
        raise WordOverflowError(field, int(values.max()), limit)
