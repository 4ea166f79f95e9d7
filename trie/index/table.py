"""A growing set (or map to small integers) of k-mers: a hash table of cache-line buckets."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trie.cpu.threads import run_ranges
from trie.cpu.vectors import aligned_words
from trie.index import table_kernels as kernels
from trie.index.buckets import MIN_BUCKET_BITS, REGION_BITS, REGIONS, SLOTS

NO_VALUES = np.empty(0, dtype=np.uint32)
_LOAD_NUMERATOR, _LOAD_DENOMINATOR = 5, 8
"""The table doubles above 5/8 load: 10 % of the buckets are full then, 0.2 % afterwards."""


def bucket_bits_for(count: int) -> int:
    """Bits of a bucket number in the smallest table that holds ``count`` keys without doubling."""
    # a region may hold somewhat more than its share
    needed = count * _LOAD_DENOMINATOR * 129 // (_LOAD_NUMERATOR * 128 * SLOTS)
    return max(MIN_BUCKET_BITS, max(0, needed - 1).bit_length())


class KmerTable:
    """A set of k-mer codes (uint64), with a uint32 value each if ``with_values``.

    One writer at a time, or several through ``part``: part p of ``1 << part_bits`` owns the k-mers
    whose key has p in its highest bits, so that parts never touch the same bucket.
    """

    def __init__(self, *, expected: int = 0, with_values: bool = False) -> None:
        self._with_values = with_values
        self._counts = np.zeros(REGIONS, dtype=np.int64)
        self._allocate(bucket_bits_for(expected))

    def _allocate(self, bucket_bits: int) -> None:
        self._bucket_bits = bucket_bits
        self._shift = np.uint64(64 - bucket_bits)
        self._keys = aligned_words(SLOTS << bucket_bits)
        self._stored = (
            np.empty(SLOTS << bucket_bits, dtype=np.uint32) if self._with_values else NO_VALUES
        )
        slots = SLOTS << (bucket_bits - REGION_BITS)
        self._limit = slots * _LOAD_NUMERATOR // _LOAD_DENOMINATOR

    def __len__(self) -> int:
        return int(self._counts.sum())

    def memory_bytes(self) -> int:
        """Bytes of the arrays."""
        return self._keys.nbytes + self._stored.nbytes

    def arrays(self) -> tuple[NDArray[np.uint64], NDArray[np.uint32], np.uint64]:
        """Keys, values and shift, as ``trie.index.buckets`` takes them."""
        return self._keys, self._stored, self._shift

    def codes(self) -> NDArray[np.uint64]:
        """The k-mer codes, in no particular order."""
        out = np.empty(len(self), dtype=np.uint64)
        kernels.list_codes(self._keys, out)
        return out

    def enlarge(self, threads: int = 1) -> None:
        """Double the table: one forward pass over the old and the new array."""
        old_keys, old_stored = self._keys, self._stored
        self._allocate(self._bucket_bits + 1)
        new = self._keys, self._shift, self._stored
        run_ranges(
            lambda a, b: kernels.double_regions(old_keys, old_stored, *new, a, b),
            0, REGIONS, threads,
        )  # fmt: skip

    def match(self, *windows: Any) -> None:
        """Write the events, and values, of the windows that begin in [start, stop).

        windows: bases, offsets, k, canonical, start, stop, events, values.
        """
        kernels.match_windows(self._keys, self._shift, self._stored, *windows)

    def insert(self, *codes: Any) -> int:
        """Insert codes[first:] of one part in order; returns where to resume once enlarged.

        codes: codes, values (may be empty), first, part, part_bits, new (says which were absent).
        """
        table = (self._keys, self._shift, self._stored, self._counts, self._limit)
        return int(kernels.insert_codes(*table, *codes))

    def grow(self, *windows: Any) -> int:
        """Insert windows of one part in stream order from ``state`` on; how many are new.

        ``state[0]`` below ``stop`` means that the table must be enlarged first. windows: bases,
        offsets, k, canonical, seed_end, stop, state, part, part_bits, events, new_codes,
        new_positions, filled (entries of both so far).
        """
        table = (self._keys, self._shift, self._stored, self._counts, self._limit)
        return int(kernels.grow_windows(*table, *windows))
