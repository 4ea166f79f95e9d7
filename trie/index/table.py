"""A growing set (or map to small integers) of k-mers: a hash table of cache-line buckets."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from trie.cpu.threads import run_all, split_range
from trie.cpu.vectors import aligned_words
from trie.index import table_kernels as kernels
from trie.index.buckets import MIN_BUCKET_BITS, REGION_BITS, REGIONS, SLOTS

_NO_STORED = np.empty(0, dtype=np.uint32)
_LOAD_NUMERATOR, _LOAD_DENOMINATOR = 5, 8
"""The table doubles above 5/8 load: 10 of 100 buckets are full then, 2 of 1000 just after it."""


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

    def __init__(self, k: int, *, expected: int = 0, with_values: bool = False) -> None:
        self.k = k
        self.with_values = with_values
        self._counts = np.zeros(REGIONS, dtype=np.int64)
        self._allocate(bucket_bits_for(expected))

    def _allocate(self, bucket_bits: int) -> None:
        self._bucket_bits = bucket_bits
        self._shift = np.uint64(64 - bucket_bits)
        self._keys = aligned_words(SLOTS << bucket_bits)
        self._stored = (
            np.empty(SLOTS << bucket_bits, dtype=np.uint32) if self.with_values else _NO_STORED
        )
        slots = SLOTS << (bucket_bits - REGION_BITS)
        self._limit = slots * _LOAD_NUMERATOR // _LOAD_DENOMINATOR

    def __len__(self) -> int:
        return int(self._counts.sum())

    def memory_bytes(self) -> int:
        """Bytes of the arrays."""
        return self._keys.nbytes + self._stored.nbytes

    def codes(self) -> NDArray[np.uint64]:
        """The k-mer codes, in no particular order."""
        out = np.empty(len(self), dtype=np.uint64)
        kernels.list_codes(self._keys, out)
        return out

    def enlarge(self, threads: int = 1) -> None:
        """Double the table: one forward pass over the old and the new array."""
        old_keys, old_stored = self._keys, self._stored
        self._allocate(self._bucket_bits + 1)
        tasks = [
            partial(
                kernels.double_regions,
                old_keys, old_stored, self._keys, self._shift, self._stored, first, last,
            )
            for first, last in split_range(0, REGIONS, threads)
        ]  # fmt: skip
        run_all(tasks, threads)

    def match(
        self,
        bases: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        canonical: bool,
        start: int,
        stop: int,
        events: NDArray[np.uint8],
        values: NDArray[np.uint32] | None,
    ) -> None:
        """Write the events, and values, of the windows that begin in [start, stop)."""
        stored, out = (_NO_STORED, _NO_STORED) if values is None else (self._stored, values)
        kernels.match_windows(
            self._keys, self._shift, stored, bases, offsets, self.k, canonical, start, stop,
            events, out,
        )  # fmt: skip

    def find(
        self, codes: NDArray[np.uint64], values: NDArray[np.uint32] | None
    ) -> NDArray[np.bool_]:
        """Whether each code is in the set; writes the values of those that are."""
        found = np.empty(codes.size, dtype=np.bool_)
        stored, out = (_NO_STORED, _NO_STORED) if values is None else (self._stored, values)
        kernels.find_codes(self._keys, self._shift, stored, codes, found, out)
        return found

    def insert(
        self,
        codes: NDArray[np.uint64],
        values: NDArray[np.uint32] | None,
        first: int,
        part: int,
        part_bits: int,
        new: NDArray[np.bool_],
    ) -> int:
        """Insert codes[first:] of one part; where it stopped (below the end: enlarge, go on)."""
        given = _NO_STORED if values is None else values
        return int(
            kernels.insert_codes(
                self._keys, self._shift, self._stored, self._counts, self._limit, codes, given,
                first, part, part_bits, new,
            )
        )  # fmt: skip

    def grow(
        self,
        bases: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        canonical: bool,
        seed_end: int,
        stop: int,
        state: NDArray[np.uint64],
        part: int,
        part_bits: int,
        events: NDArray[np.uint8],
        new_codes: NDArray[np.uint64],
        new_positions: NDArray[np.int64],
        filled: int,
    ) -> int:
        """Insert the windows of one part in stream order from ``state`` on; how many are new.

        ``state[0]`` below ``stop`` means that the table must be enlarged first.
        """
        return int(
            kernels.grow_windows(
                self._keys, self._shift, self._stored, self._counts, self._limit, bases, offsets,
                self.k, canonical, seed_end, stop, state, part, part_bits, events, new_codes,
                new_positions, filled,
            )
        )  # fmt: skip
