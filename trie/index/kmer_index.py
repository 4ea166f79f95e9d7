"""The k-mer index that the engine asks: a bitset for short k-mers, a hash table for the others.

Exact matching of thesis 3.3.1, the growing dictionary of 3.3.9 and the reconciliation of 3.3.10:
every window of k symbols is a match or a mismatch, and in a growing dictionary a mismatched k-mer
is added at once, so that the first window ever of a k-mer is its only mismatch.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from trie.codes import check_k
from trie.cpu.threads import run_all, split_range
from trie.index.bitset import MAX_BITSET_K, KmerBitset, bitset_bytes
from trie.index.buckets import REGION_BITS
from trie.index.merge import merge_parts
from trie.index.table import KmerTable
from trie.index.table_kernels import MATCH, MISMATCH, NO_VALUE
from trie.windows import check_batch, start_state

__all__ = ["MATCH", "MISMATCH", "NO_VALUE", "KmerIndex"]

_ALWAYS_BITSET_K = 12
_PARALLEL_FROM = 1 << 16
# symbols or codes between two looks at the whole; what parts add in them waits in L3 for the merge
_SLAB = 1 << 18
_NO_EVENTS = np.empty(0, dtype=np.uint8)


class KmerIndex:
    """A growing set of k-mers of one length, with a small integer each if ``with_values``.

    ``expected`` k-mers fit without doubling. Raises ValueError unless 1 <= k <= 31. Calls that add
    need the index for themselves; any number of threads may look up at once in between.
    """

    def __init__(self, k: int, *, expected: int = 0, with_values: bool = False) -> None:
        check_k(k)
        self.k = k
        self.with_values = with_values
        self._store: KmerTable | KmerBitset
        if k <= _ALWAYS_BITSET_K and not with_values:
            self._store = KmerBitset(k)
        else:
            self._store = KmerTable(k, expected=min(expected, 4**k), with_values=with_values)
            if self._bitset_is_smaller(self._store.memory_bytes()):
                self._store = KmerBitset(k)

    def _bitset_is_smaller(self, table_bytes: int) -> bool:
        return (
            not self.with_values and self.k <= MAX_BITSET_K and bitset_bytes(self.k) <= table_bytes
        )

    def __len__(self) -> int:
        return len(self._store)

    def memory_bytes(self) -> int:
        """Bytes of the arrays of the index."""
        return self._store.memory_bytes()

    def codes(self) -> NDArray[np.uint64]:
        """All k-mer codes, ascending."""
        codes = self._store.codes()
        if isinstance(self._store, KmerTable):
            codes.sort()
        return codes

    def add(
        self,
        codes: NDArray[np.uint64],
        values: NDArray[np.uint32] | None = None,
        threads: int = 1,
    ) -> NDArray[np.bool_]:
        """Add k-mer codes (uint64[n], each below 4**k) with their values (uint32[n]).

        Returns bool[n]: which were absent; of equal codes only the first is. A k-mer that is
        present keeps its value; without ``values`` a new one gets NO_VALUE. Raises ValueError for
        values of another length, or where the index holds none, and for a code out of range.
        """
        codes = np.ascontiguousarray(codes, dtype=np.uint64)
        if codes.size and int(codes.max()) >> (2 * self.k):
            message = f"a code is not one of {self.k} bases"
            raise ValueError(message)
        if values is not None:
            if not self.with_values:
                message = "this index holds no values"
                raise ValueError(message)
            values = np.ascontiguousarray(values, dtype=np.uint32)
            if values.size != codes.size:
                message = f"{values.size} values for {codes.size} codes"
                raise ValueError(message)
        new = np.empty(codes.size, dtype=np.bool_)
        part_bits = _part_bits(threads, codes.size)
        for start in range(0, codes.size, _SLAB):
            slab = slice(start, start + _SLAB)
            self._add_slab(
                codes[slab], None if values is None else values[slab], new[slab], part_bits, threads
            )
            self._settle()
        return new

    def _add_slab(
        self,
        codes: NDArray[np.uint64],
        values: NDArray[np.uint32] | None,
        new: NDArray[np.bool_],
        part_bits: int,
        threads: int,
    ) -> None:
        reached = [0] * (1 << part_bits)
        while unfinished := [part for part, at in enumerate(reached) if at < codes.size]:
            stops = run_all(
                [
                    partial(self._store.insert, codes, values, reached[part], part, part_bits, new)
                    for part in unfinished
                ],
                threads,
            )
            for part, at in zip(unfinished, stops, strict=True):
                reached[part] = at
            if min(stops) < codes.size:
                self._store.enlarge(threads)

    def reconcile(self, codes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Add mismatched k-mers in order: True where it stays a mismatch (thesis 3.3.10).

        False are those that an earlier event of the stream has added: they become matches.
        """
        return self.add(codes)

    def find(
        self, codes: NDArray[np.uint64]
    ) -> tuple[NDArray[np.bool_], NDArray[np.uint32] | None]:
        """Whether each code (uint64[n]) is present, and the values (None for an index without)."""
        codes = np.ascontiguousarray(codes, dtype=np.uint64)
        values = np.full(codes.size, NO_VALUE, dtype=np.uint32) if self.with_values else None
        return self._store.find(codes, values), values

    def match(
        self,
        bases: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        *,
        canonical: bool,
        threads: int = 1,
        events: NDArray[np.uint8] | None = None,
        values: NDArray[np.uint32] | None = None,
    ) -> NDArray[np.uint8]:
        """Look up every window of a batch; the index stays as it is (thesis 3.3.1).

        ``bases`` uint8[total], ``offsets`` int64[reads + 1]. Returns ``events`` uint8[total]: at
        the first symbol of each window 1 for a match, 2 for a mismatch, 0 elsewhere. ``values``
        uint32[total], if given, receives the k-mer's value or NO_VALUE. Raises BatchShapeError
        (a ValueError) for offsets that do not describe the bases or results of another size.
        """
        bases, offsets = check_batch(bases, offsets)
        events = _results(events, bases.size, np.uint8, 0)
        if values is not None:
            values = _results(values, bases.size, np.uint32, NO_VALUE)
            if not self.with_values:
                values = None
        ranges = split_range(
            0, bases.size, threads if bases.size >= _PARALLEL_FROM else 1, align=64
        )
        store = self._store
        tasks = [
            partial(store.match, bases, offsets, canonical, start, stop, events, values)
            for start, stop in ranges
        ]
        run_all(tasks, threads)
        return events

    def grow(
        self,
        bases: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        *,
        canonical: bool,
        threads: int = 1,
        events: NDArray[np.uint8] | None = None,
        seed_end: int = 0,
    ) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """Match every window of a batch in stream order and add each mismatched k-mer at once.

        Windows inside the first ``seed_end`` symbols are added silently: their event is a match.
        Returns the new k-mers (codes uint64[n]) and their windows' first symbols (int64[n]), in
        stream order, seeds too. ``events`` and errors as in ``match``. Results do not depend on
        ``threads`` or on where a stream is cut into batches (thesis 3.3.9-3.3.10).
        """
        bases, offsets = check_batch(bases, offsets)
        events = _results(events, bases.size, np.uint8, 0)
        part_bits = _part_bits(threads, bases.size)
        # pages that no new k-mer is written to are never made
        new_codes = np.empty(bases.size, dtype=np.uint64)
        new_positions = np.empty(bases.size, dtype=np.int64)
        states = [start_state(offsets, np.uint64(0)) for _ in range(1 << part_bits)]
        grow = partial(self._grow_to, bases, offsets, canonical, seed_end, states, part_bits)
        total = 0
        shape = (len(states), min(_SLAB, bases.size) if part_bits else 0)
        rows = np.empty(shape, dtype=np.uint64), np.empty(shape, dtype=np.int64)
        for start in range(0, bases.size, _SLAB):
            stop = min(start + _SLAB, bases.size)
            left = new_codes[total:], new_positions[total:]
            if part_bits == 0:
                filled = grow(stop, events, left[0][np.newaxis], left[1][np.newaxis], threads)
            else:
                filled = grow(stop, _NO_EVENTS, *rows, threads)
                merge_parts(
                    bases, offsets, self.k, seed_end, start, stop, *rows, filled,
                    events, *left, threads,
                )  # fmt: skip
            total += sum(filled)
            self._settle()
        return _trimmed(new_codes, total), _trimmed(new_positions, total)

    def _grow_to(
        self,
        bases: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        canonical: bool,
        seed_end: int,
        states: list[NDArray[np.uint64]],
        part_bits: int,
        stop: int,
        events: NDArray[np.uint8],
        codes: NDArray[np.uint64],
        positions: NDArray[np.int64],
        threads: int,
    ) -> list[int]:
        """Let every part take the windows that end before ``stop``; how many were new to each."""
        filled = [0] * len(states)
        while True:
            unfinished = [part for part, state in enumerate(states) if state[0] < stop]
            if not unfinished:
                return filled
            counts = run_all(
                [
                    partial(
                        self._store.grow, bases, offsets, canonical, seed_end, stop, states[part],
                        part, part_bits, events, codes[part], positions[part], filled[part],
                    )
                    for part in unfinished
                ],
                threads,
            )  # fmt: skip
            for part, count in zip(unfinished, counts, strict=True):
                filled[part] = count
            if any(states[part][0] < stop for part in unfinished):
                self._store.enlarge(threads)

    def _settle(self) -> None:
        """Turn the table into a bitset where that is no larger.

        Only between slabs: the parts of several writers are not the same in both.
        """
        table = self._store
        if isinstance(table, KmerTable) and self._bitset_is_smaller(table.memory_bytes()):
            codes = table.codes()
            self._store = KmerBitset(self.k)
            self._store.insert(codes, None, 0, 0, 0, np.empty(codes.size, dtype=np.bool_))


def _results(given: NDArray | None, size: int, dtype: type, fill: int | np.uint32) -> NDArray:  # type: ignore[type-arg]
    """The result array, given or new, filled."""
    if given is None:
        return np.full(size, fill, dtype=dtype) if fill else np.zeros(size, dtype=dtype)
    if given.shape != (size,) or given.dtype != dtype or not given.flags.c_contiguous:
        message = f"results need a contiguous array of {size} {np.dtype(dtype).name}"
        raise ValueError(message)
    given.fill(fill)
    return given


def _part_bits(threads: int, size: int) -> int:
    """The parts for several writers: the largest power of two not above ``threads``."""
    if size < _PARALLEL_FROM:
        return 0
    return min(max(1, threads).bit_length() - 1, REGION_BITS)


def _trimmed(array: NDArray, count: int) -> NDArray:  # type: ignore[type-arg]
    """The first ``count`` elements; copied where the rest would hold much memory for nothing."""
    return array[:count] if 2 * count >= array.size else array[:count].copy()
