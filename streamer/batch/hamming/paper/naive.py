"""The method ``naive``: equation (1) of the PMASM paper, window by window, pattern by pattern.

n r m comparisons for n windows and r patterns of m symbols, without early exit.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamer.batch.hamming.problem import Oriented, hit_word
from trie.codes import GAP
from trie.cpu.jit import njit

NO_SYMBOL = GAP + 1  # stands for a gap code in a pattern; equals nothing in a text


def prepare(patterns: Oriented) -> tuple[NDArray[np.uint8]]:
    """Return the patterns, uint8[r, m], with NO_SYMBOL for gap codes."""
    return (np.where(patterns.codes < GAP, patterns.codes, NO_SYMBOL).astype(np.uint8),)


def most_windows(patterns: Oriented, cells: int) -> int:
    """Implement ``most_windows`` of ``engines.ON_CPU``."""
    return cells // patterns.codes.size


@njit(cache=True, nogil=True)
def scan(codes, first, stop, origin, ids, k, words, patterns):
    """Implement ``scan`` of ``engines.ON_CPU``."""
    written = 0
    for start in range(first, stop):
        if written + ids.size > words.size:
            return start, written, ids.size
        for p in range(ids.size):
            distance = 0
            for j in range(patterns.shape[1]):
                distance += codes[start + j] != patterns[p, j]
            if distance <= k:
                words[written] = hit_word(start - origin, ids[p], distance)
                written += 1
    return stop, written, 0
