"""Ascending k-mer codes, each once: what one array has that another lacks, and both together."""

# mypy: no-check-untyped-defs

from __future__ import annotations

from functools import partial

import numpy as np
from numba import njit
from numpy.typing import NDArray

from trie.parallel import run_all, split_range

_PER_THREAD = 1 << 15
"""Codes that are worth a thread."""


def lacking(
    held: NDArray[np.uint64], codes: NDArray[np.uint64], threads: int = 1
) -> NDArray[np.uint64]:
    """Those of ``codes`` that ``held`` lacks; uint64[n] and uint64[m], ascending, each once."""
    if not held.size or not codes.size:
        return codes
    absent = np.empty(codes.size, dtype=np.bool_)

    def look_up(first: int, stop: int) -> None:
        part = codes[first:stop]
        at = np.minimum(np.searchsorted(held, part), held.size - 1)
        np.not_equal(held[at], part, out=absent[first:stop])

    run_all([partial(look_up, *part) for part in _parts(codes.size, threads)], threads)
    return codes if absent.all() else codes[absent]


def merged(
    first: NDArray[np.uint64], second: NDArray[np.uint64], threads: int = 1
) -> NDArray[np.uint64]:
    """All codes of two ascending arrays, ascending, those of both twice."""
    out = np.empty(first.size + second.size, dtype=np.uint64)
    longer, shorter = (first, second) if first.size >= second.size else (second, first)
    cuts = [start for start, _ in _parts(longer.size, threads)] + [longer.size]
    others = [0, *np.searchsorted(shorter, longer[cuts[1:-1]]).tolist(), shorter.size]
    run_all(
        [
            partial(_merge, longer[a:b], shorter[c:d], out[a + c : b + d])
            for a, b, c, d in zip(cuts, cuts[1:], others, others[1:], strict=False)
        ],
        threads,
    )
    return out


def _parts(size: int, threads: int) -> list[tuple[int, int]]:
    return split_range(0, size, min(threads, 1 + size // _PER_THREAD))


@njit(cache=True, nogil=True)
def _merge(first, second, out):  # type: ignore[no-untyped-def]
    i = 0
    j = 0
    while i < first.size and j < second.size:
        # without a branch, which random codes would mispredict
        a, b = first[i], second[j]
        out[i + j] = min(a, b)
        i, j = i + (a <= b), j + (a > b)
    for at in range(i, first.size):
        out[at + j] = first[at]
    for at in range(j, second.size):
        out[first.size + at] = second[at]
