"""Sets of k-mer codes as ascending arrays: look up, subtract, merge."""

import numpy as np
from numpy.typing import NDArray

from trie.cpu.jit import njit
from trie.cpu.threads import run_each, run_ranges, split_range

_GRAIN = 1 << 15  # fewer codes are not worth a thread
_TOGETHER = 64


def places(
    stored: NDArray[np.uint64], codes: NDArray[np.uint64], threads: int = 1
) -> NDArray[np.int64]:
    """The index of each code (uint64[m], any order) in ``stored``, -1 if absent.

    stored: uint64[n], strictly ascending.
    """
    at = np.empty(codes.size, dtype=np.int64)
    run_ranges(
        lambda a, b: _places(stored, codes[a:b], at[a:b]), 0, codes.size, threads, grain=_GRAIN
    )
    return at


def lacking(
    stored: NDArray[np.uint64], codes: NDArray[np.uint64], threads: int = 1
) -> NDArray[np.uint64]:
    """The codes missing from ``stored``; both are uint64 and strictly ascending."""
    absent = places(stored, codes, threads) < 0
    return codes if absent.all() else codes[absent]


def merged(
    first: NDArray[np.uint64], second: NDArray[np.uint64], threads: int = 1
) -> NDArray[np.uint64]:
    """All codes of two ascending arrays, ascending; codes in both appear twice."""
    out = np.empty(first.size + second.size, dtype=np.uint64)
    longer, shorter = (first, second) if first.size >= second.size else (second, first)
    parts = split_range(0, longer.size, min(threads, 1 + longer.size // _GRAIN))
    cuts = [start for start, _ in parts] + [longer.size]
    others = [0, *np.searchsorted(shorter, longer[cuts[1:-1]]).tolist(), shorter.size]
    run_each(
        lambda a, b, c, d: merge_into(longer[a:b], shorter[c:d], out[a + c : b + d]),
        zip(cuts, cuts[1:], others, others[1:], strict=False),
        threads,
    )
    return out


@njit(cache=True, nogil=True)
def _places(stored, codes, out):
    at = np.zeros(_TOGETHER, dtype=np.uint64)
    for begin in range(0, codes.size, _TOGETHER):
        asked = codes[begin : begin + _TOGETHER]
        at[:] = 0
        # one binary search step for many codes at once, so that their cache misses overlap
        span = np.uint64(stored.size)
        while span > 1:
            half = span >> np.uint64(1)
            for i in range(asked.size):
                later = at[i] + half
                at[i] = later if stored[later] <= asked[i] else at[i]
            span -= half
        for i in range(asked.size):
            there = stored.size > 0 and stored[at[i]] == asked[i]
            out[begin + i] = np.int64(at[i]) if there else -1


@njit(cache=True, nogil=True)
def merge_into(first, second, out):
    """Write all codes of two ascending arrays to ``out``, ascending."""
    i = 0
    j = 0
    while i < first.size and j < second.size:
        # no branch: random codes would mispredict it
        a, b = first[i], second[j]
        out[i + j] = min(a, b)
        i, j = i + (a <= b), j + (a > b)
    for at in range(i, first.size):
        out[at + j] = first[at]
    for at in range(j, second.size):
        out[first.size + at] = second[at]
