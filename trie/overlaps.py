"""Hits of one pattern that overlap: the nearest stays."""

import numpy as np
from numpy.typing import NDArray

from trie.cpu.jit import njit


def disjoint(
    keys: list[NDArray[np.int64]],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    distances: NDArray[np.int32],
    longest: int,
) -> NDArray[np.bool_]:
    """Return which hits stay if each takes its span, in the order of distance, then end.

    keys: int64 arrays; hits overlap only where all keys are equal. starts, ends: int64, half-open,
    none empty, of at most ``longest`` symbols; hits with equal keys by ascending end.
    """
    order = np.arange(ends.size)
    for key in reversed(keys):
        order = order[np.argsort(key[order], kind="stable")]
    new = np.zeros(ends.size, dtype=np.bool_)
    for key in keys:
        new[1:] |= key[order[1:]] != key[order[:-1]]
    ranked = np.argsort(distances[order], kind="stable")
    stays = np.empty(ends.size, dtype=np.bool_)
    stays[order] = _take(np.cumsum(new), starts[order], ends[order], ranked, longest)
    return stays


@njit(cache=True, nogil=True)
def _take(group, start, end, ranked, longest):
    """Take hits in the order ``ranked`` and drop all that overlap a taken one.

    Hits are by group and end. Taken ones are disjoint, so a hit is examined by few of them.
    """
    stays = np.ones(end.size, dtype=np.bool_)
    for i in ranked:
        if not stays[i]:
            continue
        j = i - 1
        while j >= 0 and group[j] == group[i] and end[j] > start[i]:
            stays[j] = False
            j -= 1
        j = i + 1
        while j < end.size and group[j] == group[i] and end[j] - longest < end[i]:
            if start[j] < end[i]:
                stays[j] = False
            j += 1
    return stays
