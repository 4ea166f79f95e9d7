"""PASM on the CPU (WsPASM paper, algorithm 1): a row of D at once, by equations 2 and 3.

    X[l, j]   the last position <= j of the text that holds letter l of the alphabet, 0 if none
    D[i, j]   D[i-1, j-1] where T[j-1] = P[i-1], else 1 + the least of D[i-1, j], D[i-1, j-1] and
              D[i-1, X-1] + (j-1-X), which stands for the row's own past; i+j-1 where X = 0

so that no cell depends on another of its row. The alphabet is that of the pattern's letters (sets
of bases with IUPAC). The rows of X are made side by side, then each row of D by all threads, which
wait for each other between rows. Two rows of D are kept.

Operations: m cells a symbol with three loads of the row before, one of them anywhere; 4 bytes a
symbol for each letter of X and each of the two rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from streamer.batch.asm.found import EndsFound, TooManyError, in_order, joined
from streamer.batch.asm.patterns import Searches
from trie.cpu.jit import njit
from trie.cpu.threads import run_all, split_range


class Pasm:
    """Searches blocks of text for all patterns."""

    block_size = 1 << 20

    def __init__(self, searches: Searches, threads: int) -> None:
        self._searches = searches
        self._threads = threads

    def search(self, codes: NDArray[np.uint8], lead: int, limit: int) -> EndsFound:
        """Every end in (lead, n] with a distance <= k, in the order of rows."""
        last = last_positions(codes, self._searches.masks, self._threads)
        found = []
        for i, masks in enumerate(self._searches.masks):
            row = self._last_row(codes, masks, last)
            ends = lead + 1 + np.flatnonzero(row[lead + 1 :] <= self._searches.k)
            found.append(EndsFound(ends, row[ends], np.full(ends.size, i, dtype=np.int32)))
        if sum(map(len, found)) > limit:
            raise TooManyError
        return in_order(joined(found), lead, codes.size)

    def _last_row(
        self, codes: NDArray[np.uint8], masks: NDArray[np.uint8], last: dict[int, NDArray[np.int32]]
    ) -> NDArray[np.int32]:
        above = np.zeros(codes.size + 1, dtype=np.int32)
        row = np.empty_like(above)
        parts = split_range(1, codes.size + 1, self._threads)
        for i, mask in enumerate(masks, 1):
            row[0] = i
            tasks = [
                partial(_row, codes, mask, last[mask], i, above, row, low, high)
                for low, high in parts
            ]
            run_all(tasks, self._threads)
            above, row = row, above
        return above


def last_positions(
    codes: NDArray[np.uint8], patterns: Sequence[NDArray[np.uint8]], threads: int
) -> dict[int, NDArray[np.int32]]:
    """The rows of X (equation 2), int32[n + 1], by letter."""
    alphabet = np.unique(np.concatenate(patterns))
    rows = run_all([partial(_last_positions, codes, mask) for mask in alphabet], threads)
    return dict(zip(alphabet.tolist(), rows, strict=True))


@njit(cache=True, nogil=True)
def _last_positions(codes, mask):
    row = np.empty(codes.size + 1, np.int32)
    last = 0
    row[0] = 0
    for j in range(1, codes.size + 1):
        if mask >> codes[j - 1] & 1:
            last = j
        row[j] = last
    return row


@njit(cache=True, nogil=True)
def _row(codes, mask, last, i, above, row, low, high):
    """Columns low..high of row i, by equation 3."""
    for j in range(low, high):
        if mask >> codes[j - 1] & 1:
            row[j] = above[j - 1]
        else:
            x = last[j]
            along = i + j - 1 if x == 0 else above[x - 1] + (j - 1 - x)
            row[j] = 1 + min(above[j], min(above[j - 1], along))
