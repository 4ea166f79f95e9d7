"""The k-mer index of the engine: a bitset for short k-mers, a hash table for the others.

Exact matching of thesis 3.3.1, the growing dictionary of 3.3.9 and the reconciliation of 3.3.10:
every window of k symbols is a match or a mismatch, and a growing dictionary adds a mismatched k-mer
at once, so only the first window of a k-mer is a mismatch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trie.codes import check_k
from trie.cpu.threads import run_each, run_ranges
from trie.index.bitset import MAX_BITSET_K, KmerBitset, bitset_bytes
from trie.index.buckets import REGION_BITS
from trie.index.merge import merge_parts
from trie.index.table import NO_VALUES, KmerTable
from trie.windows import GRAIN, NO_SET, check_batch, start_state

ALWAYS_BITSET_K = 12
"""The largest k for which every set of k-mers is a bitset: 2 MB or less."""

_PARALLEL_FROM = 1 << 16
# symbols or codes between two merges; what the parts add meanwhile stays in L3
_SLAB = 1 << 18
_NO_EVENTS = np.empty(0, dtype=np.uint8)


class KmerIndex:
    """A growing set of k-mers of one length, with a set number for each if ``with_values``.

    ``expected`` k-mers fit without doubling. Raises ValueError unless 1 <= k <= 31. Calls that add
    k-mers need exclusive access; otherwise any number of threads may look up at once.
    """

    def __init__(self, k: int, *, expected: int = 0, with_values: bool = False) -> None:
        check_k(k)
        self.k = k
        self._with_values = with_values
        self._store: KmerTable | KmerBitset
        if k <= ALWAYS_BITSET_K and not with_values:
            self._store = KmerBitset(k)
        else:
            self._store = KmerTable(expected=min(expected, 4**k), with_values=with_values)
            self._settle()

    def __len__(self) -> int:
        return len(self._store)

    def memory_bytes(self) -> int:
        """Bytes of the arrays of the index."""
        return self._store.memory_bytes()

    def arrays(self) -> tuple[NDArray[np.uint64], NDArray[np.uint32], np.uint64]:
        """Keys, values and shift of the table of an index with values, to look up in a kernel.

        ``trie.index.buckets`` has the functions. The next call that adds may replace them.
        """
        assert isinstance(self._store, KmerTable)
        return self._store.arrays()

    def codes(self) -> NDArray[np.uint64]:
        """All k-mer codes, ascending."""
        codes = self._store.codes()
        if isinstance(self._store, KmerTable):
            codes.sort()
        return codes

    def add(
        self, codes: NDArray[np.uint64], values: NDArray[np.uint32] | None = None, threads: int = 1
    ) -> NDArray[np.bool_]:
        """Add k-mer codes (uint64[n], each below 4**k) with their values (uint32[n]).

        Returns bool[n]: which were absent; of equal codes only the first counts as absent. So of
        mismatched k-mers in stream order it selects those that stay mismatches (thesis 3.3.10). A
        k-mer already present keeps its value; without ``values`` a new one gets NO_SET.
        """
        codes = np.ascontiguousarray(codes, dtype=np.uint64)
        new = np.empty(codes.size, dtype=np.bool_)
        part_bits = _part_bits(threads, codes.size)

        def add_slab(*slab: NDArray[Any]) -> None:
            """slab: codes, values, and which are new."""
            reached = np.zeros(1 << part_bits, dtype=np.int64)

            def work(part: int) -> None:
                codes, values, new = slab
                reached[part] = self._store.insert(
                    codes, values, reached[part], part, part_bits, new
                )

            self._in_parts(work, reached, slab[0].size, threads)

        for start in range(0, codes.size, _SLAB):
            slab = slice(start, start + _SLAB)
            add_slab(codes[slab], NO_VALUES if values is None else values[slab], new[slab])
            self._settle()
        return new

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
        """Look up every window of a batch without changing the index (thesis 3.3.1).

        ``bases`` uint8[total], ``offsets`` int64[reads + 1]. Returns ``events`` uint8[total]: at
        the first symbol of each window 1 for a match, 2 for a mismatch, 0 elsewhere. ``values``
        uint32[total], if given, receives the k-mer's value or NO_SET. Raises BatchShapeError
        (a ValueError) if the offsets do not describe the bases or a result array has another size.
        """
        bases, offsets = check_batch(bases, offsets)
        events = _results(events, bases.size, np.uint8, 0)
        if values is not None:
            values = _results(values, bases.size, np.uint32, NO_SET)
        out = values if values is not None and self._with_values else NO_VALUES

        def match(start: int, stop: int) -> None:
            self._store.match(bases, offsets, self.k, canonical, start, stop, events, out)

        run_ranges(match, 0, bases.size, threads, grain=GRAIN, align=64)
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
        stream order, including seeds. ``events`` and errors as in ``match``. Results do not depend
        on ``threads`` or on where a stream is cut into batches (thesis 3.3.9-3.3.10).
        """
        bases, offsets = check_batch(bases, offsets)
        events = _results(events, bases.size, np.uint8, 0)
        part_bits = _part_bits(threads, bases.size)
        states = np.tile(start_state(offsets, np.uint64(0)), (1 << part_bits, 1))

        def grow_to(stop: int, events: NDArray[np.uint8], *rows: NDArray[Any]) -> NDArray[np.int64]:
            """Let every part process the windows that end before ``stop``; counts of new k-mers."""
            filled = np.zeros(len(states), dtype=np.int64)

            def work(part: int) -> None:
                codes, positions = rows
                filled[part] = self._store.grow(
                    bases, offsets, self.k, canonical, seed_end, stop, states[part], part,
                    part_bits, events, codes[part], positions[part], filled[part],
                )  # fmt: skip

            self._in_parts(work, states[:, 0], stop, threads)
            return filled

        # pages that are never written take no memory
        new_codes = np.empty(bases.size, dtype=np.uint64)
        new_positions = np.empty(bases.size, dtype=np.int64)
        shape = (len(states), min(_SLAB, bases.size) if part_bits else 0)
        rows = np.empty(shape, dtype=np.uint64), np.empty(shape, dtype=np.int64)
        total = 0
        for start in range(0, bases.size, _SLAB):
            stop = min(start + _SLAB, bases.size)
            left = new_codes[total:], new_positions[total:]
            if part_bits == 0:
                filled = grow_to(stop, events, left[0][np.newaxis], left[1][np.newaxis])
            else:
                filled = grow_to(stop, _NO_EVENTS, *rows)
                merge_parts(
                    bases, offsets, self.k, seed_end, start, stop, *rows, filled,
                    events, *left, threads,
                )  # fmt: skip
            total += int(filled.sum())
            self._settle()
        return _trimmed(new_codes, total), _trimmed(new_positions, total)

    def _in_parts(
        self, work: Callable[[int], None], reached: NDArray[Any], stop: int, threads: int
    ) -> None:
        """Call ``work(part)`` until all parts have reached ``stop``, enlarging a full table."""
        while (unfinished := np.flatnonzero(reached < stop)).size:
            run_each(work, [[int(part)] for part in unfinished], threads)
            if (reached < stop).any():
                self._store.enlarge(threads)

    def _settle(self) -> None:
        """Turn the table into a bitset if that is no larger.

        Only between slabs, as the two divide k-mers among writers differently.
        """
        if (
            not self._with_values
            and self.k <= MAX_BITSET_K
            and isinstance(self._store, KmerTable)
            and bitset_bytes(self.k) <= self._store.memory_bytes()
        ):
            codes = self._store.codes()
            self._store = KmerBitset(self.k)
            self._store.insert(codes, NO_VALUES, 0, 0, 0, np.empty(codes.size, dtype=np.bool_))


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
    """Parts for several writers: the largest power of two not above ``threads``."""
    if size < _PARALLEL_FROM:
        return 0
    return min(max(1, threads).bit_length() - 1, REGION_BITS)


def _trimmed(array: NDArray, count: int) -> NDArray:  # type: ignore[type-arg]
    """The first ``count`` elements; copied if the rest would waste much memory."""
    return array[:count] if 2 * count >= array.size else array[:count].copy()
