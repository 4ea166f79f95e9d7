"""The event word of thesis Fig. 11: one uint64 a window, as the kernels of the thesis wrote it.

    bit  63      62 ............ 32   31 ............ 5   4 ... 0
         type    index in the chunk   trie-node           depth
         0 match / 1 mismatch

The index is that of the symbol which decided the event, window start + depth - 1; the node holds
the deepest state reached; the depth is k for a match. One byte a window and an array of depths say
the same in less memory: words are made where they are asked for.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trie.codes import MAX_K
from trie.windows import MATCH, MISMATCH

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


class UnpackedEvents(NamedTuple):
    """The fields of event words, in their order, n of each."""

    events: NDArray[np.uint8]
    """1 match, 2 mismatch."""
    starts: NDArray[np.int64]
    """The first symbol of the window in its chunk."""
    nodes: NDArray[np.uint32]
    depths: NDArray[np.uint8]


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


def unpack_events(words: NDArray[np.uint64]) -> UnpackedEvents:
    """The fields of event words (uint64[n])."""
    words = np.ascontiguousarray(words, dtype=np.uint64)
    depths = words & np.uint64(MAX_K)
    index = (words >> _INDEX) & np.uint64(MAX_INDEX - 1)
    return UnpackedEvents(
        events=np.where(words >> _TYPE, MISMATCH, MATCH).astype(np.uint8),
        starts=index.astype(np.int64) - depths.astype(np.int64) + 1,
        nodes=((words >> _NODE) & np.uint64(MAX_NODES - 1)).astype(np.uint32),
        depths=depths.astype(np.uint8),
    )
