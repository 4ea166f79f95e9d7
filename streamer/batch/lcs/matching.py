"""The symbols of two sequences in a longest common subsequence: flags, blocks, identity."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamer.batch.lcs.symbols import Flags
from trie.cpu.jit import njit

BLOCK_FIELDS = [("a_start", np.int64), ("b_start", np.int64), ("length", np.int64)]


@dataclass(frozen=True, slots=True)
class Matching:
    """A common subsequence as one flag per symbol: the i-th set flags of both form a pair.

    >>> from streamer.batch import lcs
    >>> found = lcs.match("ACGTTGCA", "AGTTCA")
    >>> found.blocks().tolist()  # start in a, start in b, length
    [(0, 0, 1), (2, 1, 3), (6, 4, 2)]
    >>> found.identity(), found.column_identity()
    (0.75, 0.75)
    """

    in_a: Flags
    in_b: Flags

    def __len__(self) -> int:
        return int(np.count_nonzero(self.in_a))

    def blocks(self) -> NDArray[np.void]:
        """Return maximal runs of pairs adjacent in both sequences, in order (BLOCK_FIELDS)."""
        count = _blocks(self.in_a, self.in_b, np.empty((0, 3), dtype=np.int64))
        found = np.empty((count, 3), dtype=np.int64)
        _blocks(self.in_a, self.in_b, found)
        return found.view(BLOCK_FIELDS).reshape(-1)

    def identity(self) -> float:
        """Return the matched share of the longer sequence, 0 to 1; 1 for two empty ones.

        This is the identity of most clustering tools and of rapidfuzz's ``normalized_similarity``.
        Unlike BLAST's, it includes what lies outside the alignment.
        """
        longer = max(self.in_a.size, self.in_b.size)
        return len(self) / longer if longer else 1.0

    def column_identity(self) -> float:
        """Return the share of alignment columns that are pairs, 0 to 1; 1 for two empty sequences.

        Between two pairs, unmatched symbols of the one stand above unmatched symbols of the other
        (a mismatch) as far as both go, and the rest above a gap: BLAST's identity, over both whole
        sequences.
        """
        columns = _columns(self.in_a, self.in_b)
        return len(self) / columns if columns else 1.0


@njit(cache=True, nogil=True)
def _blocks(in_a, in_b, found):
    """Count the runs, and write them if there is room."""
    count = 0
    i = 0
    j = 0
    while True:
        while i < in_a.size and not in_a[i]:
            i += 1
        while j < in_b.size and not in_b[j]:
            j += 1
        if i == in_a.size or j == in_b.size:
            return count
        start = i
        while i < in_a.size and j < in_b.size and in_a[i] and in_b[j]:
            i += 1
            j += 1
        if count < found.shape[0]:
            found[count, 0] = start
            found[count, 1] = j - (i - start)
            found[count, 2] = i - start
        count += 1


@njit(cache=True, nogil=True)
def _columns(in_a, in_b):
    columns = 0
    i = 0
    j = 0
    while True:
        first = i
        second = j
        while i < in_a.size and not in_a[i]:
            i += 1
        while j < in_b.size and not in_b[j]:
            j += 1
        columns += max(i - first, j - second)
        if i == in_a.size or j == in_b.size:
            return columns
        columns += 1
        i += 1
        j += 1
