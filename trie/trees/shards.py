"""The 64 first-level subtries (shards): k-mers grouped, sorted and deduplicated by shard.

The shard of a k-mer (k >= 3) is the number of its first three symbols. Shards share no trie-node
but the root, so threads build, grow and write them without locks.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trie.cpu.jit import njit
from trie.cpu.threads import run_each, split_range

SHARDS = 64
SMALL = 1 << 14  # below this, threads cost more than they gain


def as_codes(codes: ArrayLike) -> NDArray[np.uint64]:
    """K-mer codes as a contiguous uint64[n]; ValueError unless they are whole numbers >= 0."""
    array = np.asarray(codes)
    if array.ndim != 1:
        raise ValueError(
            f"k-mer codes must be a one-dimensional array, these have {array.ndim} dimensions"
        )
    if array.dtype.kind not in "ui" and array.size:
        raise ValueError(f"k-mer codes must be uint64, these are {array.dtype}")
    if array.dtype.kind == "i" and array.size and int(array.min()) < 0:
        raise ValueError(f"k-mer code {int(array.min())} is negative")
    return np.ascontiguousarray(array, dtype=np.uint64)


def check_range(codes: NDArray[np.uint64], k: int) -> None:
    """Raise ValueError unless every code is below 4**k."""
    largest = int(codes.max(initial=0))
    if largest >> (2 * k):
        raise ValueError(f"code {largest} is not below 4**{k}")


class Grouped(NamedTuple):
    """Codes grouped by shard, in their original order within a shard.

    ascending: they are the argument itself, already in ascending order.
    """

    codes: NDArray[np.uint64]
    bounds: NDArray[np.int64]
    ascending: bool


@njit(cache=True, nogil=True)
def _survey(codes, start, stop, shift, counts):
    """Count the codes of every shard; returns (whether they ascend, the OR of all codes)."""
    seen = np.uint64(0)
    in_order = True
    previous = codes[start - 1] if start else np.uint64(0)
    for i in range(start, stop):
        code = codes[i]
        seen |= code
        in_order &= code >= previous
        previous = code
        counts[(code >> np.uint64(shift)) & np.uint64(SHARDS - 1)] += 1
    return in_order, seen


@njit(cache=True, nogil=True)
def _scatter(codes, start, stop, shift, following, grouped):
    """Move codes to their shards, stably."""
    for i in range(start, stop):
        code = codes[i]
        shard = code >> np.uint64(shift)
        at = following[shard]
        following[shard] = at + 1
        grouped[at] = code


@njit(cache=True, nogil=True)
def drop_repeats(codes):
    """Move the distinct values of ascending codes to the front; returns their number."""
    if codes.size == 0:
        return 0
    kept = 1
    previous = codes[0]
    for i in range(1, codes.size):
        code = codes[i]
        codes[kept] = code  # branch-free: a repeat is overwritten by the next
        kept += code != previous
        previous = code
    return kept


def group(codes: NDArray[np.uint64], k: int, threads: int) -> Grouped:
    """Group codes by shard (k >= 3), stably. Raises ValueError if a code is not below 4**k."""
    shift = 2 * (k - 3)
    parts = split_range(0, codes.size, threads if codes.size >= SMALL else 1)
    counts = np.zeros((len(parts), SHARDS), dtype=np.int64)
    surveys = run_each(
        lambda part, row: _survey(codes, *part, shift, row),
        zip(parts, counts, strict=True),
        threads,
    )
    if any(int(seen) >> (2 * k) for _, seen in surveys):
        check_range(codes, k)
    bounds = np.zeros(SHARDS + 1, dtype=np.int64)
    np.cumsum(counts.sum(axis=0), out=bounds[1:])
    if all(in_order for in_order, _ in surveys):
        return Grouped(codes, bounds, True)
    following = bounds[:-1] + np.cumsum(counts, axis=0) - counts
    grouped = np.empty_like(codes)
    run_each(
        lambda part, row: _scatter(codes, *part, shift, row, grouped),
        zip(parts, following, strict=True),
        threads,
    )
    return Grouped(grouped, bounds, False)


def sort_unique(codes: NDArray[np.uint64], k: int, threads: int) -> NDArray[np.uint64]:
    """The distinct codes in ascending order, a new array; ValueError if one is not below 4**k.

    A shard of ten million k-mers fits into a core's cache, where NumPy's vectorized sort is
    fastest.
    """
    if k < 3:
        check_range(codes, k)
        return np.unique(codes)
    grouped, bounds, in_order = group(codes, k, threads)
    if in_order:
        grouped = grouped.copy()
    elif codes.size < SMALL:
        grouped.sort()

    def sort_shard(start: int, stop: int) -> int:
        shard = grouped[start:stop]
        if not in_order and codes.size >= SMALL:
            shard.sort()
        return int(drop_repeats(shard))

    filled = [(int(a), int(b)) for a, b in pairwise(bounds) if b > a]
    size = 0
    kept = run_each(sort_shard, filled, threads)
    for (start, _), length in zip(filled, kept, strict=True):
        if start != size:
            grouped[size : size + length] = grouped[start : start + length]
        size += length
    return grouped[:size]
