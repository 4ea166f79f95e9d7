"""Events and event words of a chunk by brute force in NumPy, for tests of the kernels.

No trie is walked: a window's depth is the first length at which its prefix is not among the sorted
distinct prefixes of the dictionary, and a trie-node is the rank of a prefix on its level.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trie.codes import with_reverse_complements


def reverse_complements(codes: NDArray[np.uint64], k: int) -> NDArray[np.uint64]:
    """The codes of the k-mers' reverse complements."""
    return with_reverse_complements(codes, k)[codes.size :]


def windows(
    bases: NDArray[np.uint8], offsets: NDArray[np.int64], k: int
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Forward code and start of every window of one read without a gap code."""
    starts = np.arange(max(bases.size - k + 1, 0))
    codes = np.zeros(starts.size, dtype=np.uint64)
    good = np.ones(starts.size, dtype=np.bool_)
    for i in range(k):
        at = bases[i : i + starts.size]
        codes = (codes << np.uint64(2)) | (at & 3).astype(np.uint64)
        good &= at < 4
    read = np.searchsorted(offsets, starts, side="right")
    good &= read == np.searchsorted(offsets, starts + (k - 1), side="right")
    return codes[good], starts[good]


def expected(
    bases: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    k: int,
    dictionary: NDArray[np.uint64],
    *,
    canonical: bool,
) -> tuple[NDArray[np.uint8], NDArray[np.uint64]]:
    """Events uint8[symbols] (1 match, 2 mismatch, 0 none) and event words by window start."""
    codes, starts = windows(bases, offsets, k)
    if canonical:
        codes = np.minimum(codes, reverse_complements(codes, k))
    stored = np.unique(dictionary)
    depth = np.zeros(codes.size, dtype=np.uint64)
    node = np.zeros(codes.size, dtype=np.uint64)
    matched = np.ones(codes.size, dtype=np.bool_)
    going = matched.copy()
    first_of_level = 0
    for length in range(k + 1):
        prefixes = np.unique(stored >> np.uint64(2 * (k - length)))
        if length == 0:
            prefixes = np.zeros(1, dtype=np.uint64)
        mine = codes >> np.uint64(2 * (k - length))
        known = np.isin(mine, prefixes)
        depth[going & ~known] = length
        matched &= known
        going &= known
        if length % 3 == 0:
            rank = np.searchsorted(prefixes, mine[going]) + first_of_level
            node[going] = rank.astype(np.uint64)
            first_of_level += prefixes.size
    depth[matched] = k
    index = starts.astype(np.uint64) + depth - np.uint64(1)
    words = (
        ((~matched).astype(np.uint64) << np.uint64(63))
        | (index << np.uint64(32))
        | (node << np.uint64(5))
        | depth
    )
    events = np.zeros(bases.size, dtype=np.uint8)
    events[starts] = np.where(matched, 1, 2)
    return events, words
