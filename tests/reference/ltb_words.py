"""The words of the Levenshtein Tree Bitmap, thesis Fig. 31: the events at a symbol of a chunk.

    bit  63      62 ............ 32   31 ................................... 0
         type    index in the chunk   bitmap
         0 match                      bit e: a k-mer ends here at distance e
         1 mismatch                   bit h + 1: the state of depth h had no transition

A symbol has at most one word of each type. The kernels keep the two bitmaps of a symbol as uint32;
words are made only on request.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trie.snapshots.tree_bitmap import MAX_INDEX, WordOverflowError

_TYPE = np.uint64(63)
_INDEX = np.uint64(32)


class UnpackedBitmaps(NamedTuple):
    """The fields of n words, in their order."""

    mismatch: NDArray[np.bool_]
    indices: NDArray[np.int64]
    """The symbol of the chunk at which the event ended: its end minus 1."""
    bitmaps: NDArray[np.uint32]


def pack_words(
    matches: NDArray[np.uint32], mismatches: NDArray[np.uint32], first: int = 0
) -> NDArray[np.uint64]:
    """The words of a chunk by index, match before mismatch (thesis Fig. 31).

    ``matches`` and ``mismatches`` uint32[n] hold the bitmaps of n consecutive symbols, 0 where
    there is no word; the first of them has the index ``first`` in its chunk. Raises ValueError for
    arrays of different lengths, WordOverflowError for a word whose index is 2**31 or more.
    """
    if matches.shape != mismatches.shape or matches.ndim != 1:
        raise ValueError(f"{matches.shape} match bitmaps, {mismatches.shape} mismatch bitmaps")
    bitmaps = np.stack((matches, mismatches), axis=1).ravel()
    at = np.flatnonzero(bitmaps).astype(np.uint64)
    indices = (at >> np.uint64(1)) + np.uint64(first)
    if indices.size and int(indices[-1]) >= MAX_INDEX:
        raise WordOverflowError("index", int(indices[-1]), MAX_INDEX)
    kinds = (at & np.uint64(1)) << _TYPE
    return np.asarray(kinds | (indices << _INDEX) | bitmaps[at], dtype=np.uint64)


def unpack_words(words: NDArray[np.uint64]) -> UnpackedBitmaps:
    """The fields of words (uint64[n])."""
    words = np.ascontiguousarray(words, dtype=np.uint64)
    return UnpackedBitmaps(
        mismatch=(words >> _TYPE).astype(np.bool_),
        indices=((words >> _INDEX) & np.uint64(MAX_INDEX - 1)).astype(np.int64),
        bitmaps=(words & np.uint64(0xFFFFFFFF)).astype(np.uint32),
    )
