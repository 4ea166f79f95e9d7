"""The method ``naive``: equation (1) of the PMASM paper, window by window, pattern by pattern.

n r m comparisons for n windows and r patterns of m symbols, and none is left out.
"""

# mypy: no-check-untyped-defs

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamer.batch.hamming.packed_hits import ID_SHIFT, START_SHIFT
from streamer.batch.hamming.patterns import Oriented
from trie.codes import GAP
from trie.cpu.jit import njit

NO_SYMBOL = GAP + 1
"""What a pattern has in place of a gap code: it equals nothing in a text, a gap code neither."""


@dataclass(frozen=True, slots=True)
class Plain:
    """Patterns as letters' codes: uint8[patterns, length], uint64[patterns] ids in place, k."""

    codes: NDArray[np.uint8]
    ids: NDArray[np.uint64]
    k: int


def prepare(patterns: Oriented) -> Plain:
    """The patterns with NO_SYMBOL for gap codes."""
    codes = np.where(patterns.codes < GAP, patterns.codes, NO_SYMBOL).astype(np.uint8)
    return Plain(codes, patterns.ids.astype(np.uint64) << np.uint64(ID_SHIFT), patterns.k)


def scan(
    plain: Plain,
    codes: NDArray[np.uint8],
    first: int,
    stop: int,
    origin: int,
    words: NDArray[np.uint64],
) -> tuple[int, int, int]:
    """Hit words of the windows [first, stop), as many windows as fit (bit_sliced.scan)."""
    return _scan(codes, first, stop, origin, plain.codes, plain.ids, plain.k, words)


@njit(cache=True, nogil=True)
def _scan(codes, first, stop, origin, patterns, ids, k, words):
    written = 0
    for start in range(first, stop):
        if written + ids.size > words.size:
            return start, written, ids.size
        for p in range(ids.size):
            distance = 0
            for j in range(patterns.shape[1]):
                distance += codes[start + j] != patterns[p, j]
            if distance <= k:
                place = np.uint64(start - origin) << np.uint64(START_SHIFT)
                words[written] = place | ids[p] | np.uint64(distance)
                written += 1
    return stop, written, 0
