"""The k-mer index of the engine: a bitset for short k-mers, a hash table for the others.

Exact matching of thesis 3.3.1, the growing dictionary of 3.3.9 and the reconciliation of 3.3.10:
every window of k symbols is a match or a mismatch, and a growing dictionary adds a mismatched k-mer
at once, so only the first window of a k-mer is a mismatch.

Merge the new k-mers of several writers of an index, one part each, into stream order.

Each part holds its new k-mers by ascending window position, and positions are distinct, so merging
needs no comparison: within 4,096 symbols (32 KB of codes, in L1 or L2) every part scatters its
codes to their positions, and one sweep gathers them. About 3 operations per new k-mer and 2 per
symbol; ranges of symbols are independent, each with its own thread.

A growing set of short k-mers: one bit for each of the 4**k possible ones.

    word w, bit b      the k-mer with code 64 w + b
    4**k / 8 bytes     2 MB at k = 12, 8 MB at 13, 32 MB at 14, 128 MB at 15

A look-up reads one word of one cache line, and there is nothing to spill, double or compare; the
index switches to this form as soon as it is no larger than the hash table of the same k-mers. A
hash of the cache line (512 codes) selects the writer's part, because canonical codes crowd in the
lower half.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from trie.codes import check_k
from trie.cpu.intrinsics import prefetch_far, trailing_zeros
from trie.cpu.jit import njit
from trie.cpu.threads import run_all, run_each, run_ranges, split_range
from trie.cpu.vectors import aligned_words
from trie.index.buckets import ODD, REGION_BITS, REGIONS, in_part, region_of
from trie.index.table import NO_VALUES, KmerTable
from trie.windows import BLOCK, GRAIN, MATCH, MISMATCH, NO_SET, check_batch, roll_block, start_state

_SPAN: Final = 4096


@njit(cache=True, nogil=True)
def _merge_range(
    bases, offsets, k, last_seed, start, stop, part_codes, part_positions, cursors, ends,
    events, out_codes, out_positions, filled,
):  # fmt: skip
    """Write the events of the windows that begin in [start, stop), and gather their new k-mers."""
    block_codes = np.empty(BLOCK, dtype=np.uint64)
    block_positions = np.empty(BLOCK, dtype=np.uint64)
    end = min(stop + k - 1, bases.size)
    state = start_state(offsets, np.uint64(start))
    while state[0] < np.uint64(end):
        n = roll_block(bases, offsets, k, False, end, state, block_codes, block_positions)
        for j in range(n):
            events[block_positions[j]] = MATCH
    codes = np.empty(_SPAN, dtype=np.uint64)
    new = np.zeros(_SPAN, dtype=np.uint8)
    for first in range(start, stop, _SPAN):
        last = min(first + _SPAN, stop)
        for part in range(cursors.size):
            at = cursors[part]
            while at < ends[part] and part_positions[part, at] < last:
                inside = part_positions[part, at] - first
                codes[inside] = part_codes[part, at]
                new[inside] = 1
                at += 1
            cursors[part] = at
        for inside in range(last - first):
            if new[inside]:
                new[inside] = 0
                out_codes[filled] = codes[inside]
                out_positions[filled] = first + inside
                filled += 1
                if first + inside > last_seed:
                    events[first + inside] = MISMATCH


def merge_parts(
    bases: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    k: int,
    seed_end: int,
    start: int,
    stop: int,
    codes: NDArray[np.uint64],
    positions: NDArray[np.int64],
    filled: NDArray[np.int64],
    events: NDArray[np.uint8],
    out_codes: NDArray[np.uint64],
    out_positions: NDArray[np.int64],
    threads: int,
) -> None:
    """Gather the new k-mers of all parts (rows of ``codes`` and ``positions``) by position.

    Also writes the events of the windows that end at a symbol of [start, stop).
    """
    first = max(0, start - k + 1)
    last = max(0, stop - k + 1)
    tasks = []
    for low, high in split_range(first, last, threads, align=_SPAN):
        cuts = np.array(
            [
                np.searchsorted(row[:count], (low, high))
                for row, count in zip(positions, filled, strict=True)
            ],
            dtype=np.int64,
        )
        cursors, ends = np.ascontiguousarray(cuts.T)
        tasks.append(
            partial(
                _merge_range, bases, offsets, k, seed_end - k, low, high, codes, positions,
                cursors, ends, events, out_codes, out_positions, int(cursors.sum()),
            )
        )  # fmt: skip
    run_all(tasks, threads)


MAX_BITSET_K: Final = 15
_WORD: Final = np.uint64(6)
_INSIDE: Final = np.uint64(63)
_ONE: Final = np.uint64(1)


@njit(cache=True, nogil=True, inline="always")
def _in_part(code, part, part_bits):
    return in_part(region_of((code >> np.uint64(9)) * ODD), part, part_bits)


@njit(cache=True, nogil=True, inline="always")
def _bit(words, code):
    return (words[code >> _WORD] >> (code & _INSIDE)) & _ONE


@njit(cache=True, nogil=True)
def _match_windows(words, bases, offsets, k, canonical, start, stop, events, values):
    """Events of the windows that begin in [start, stop); ``events`` is zero there."""
    codes = np.empty(BLOCK, dtype=np.uint64)
    positions = np.empty(BLOCK, dtype=np.uint64)
    next_codes = np.empty(BLOCK, dtype=np.uint64)
    next_positions = np.empty(BLOCK, dtype=np.uint64)
    end = min(stop + k - 1, bases.size)
    state = start_state(offsets, np.uint64(start))
    count = 0
    while count > 0 or state[0] < np.uint64(end):
        n = np.int64(
            roll_block(bases, offsets, k, canonical, end, state, next_codes, next_positions)
        )
        for j in range(max(n, count)):
            if j < n:
                prefetch_far(words, next_codes[j] >> _WORD)
            if j < count:
                events[positions[j]] = MISMATCH - np.uint8(_bit(words, codes[j]))
        codes, next_codes = next_codes, codes
        positions, next_positions = next_positions, positions
        count = n


@njit(cache=True, nogil=True)
def _insert_codes(words, counts, codes, values, first, part, part_bits, new):
    """As ``trie.index.table.insert_codes``, but never full."""
    pending = np.empty(BLOCK, dtype=np.int64)
    added = 0
    for begin in range(first, codes.size, BLOCK):
        count = 0
        for j in range(begin, min(begin + BLOCK, codes.size)):
            pending[count] = j
            if _in_part(codes[j], part, part_bits):
                prefetch_far(words, codes[j] >> _WORD)
                count += 1
        for i in range(count):
            j = pending[i]
            absent = _bit(words, codes[j]) == np.uint64(0)
            words[codes[j] >> _WORD] |= _ONE << (codes[j] & _INSIDE)
            new[j] = absent
            added += np.int64(absent)
    counts[part] += added
    return codes.size


@njit(cache=True, nogil=True)
def _grow_windows(
    words, counts, bases, offsets, k, canonical, seed_end, stop, state, part, part_bits,
    events, new_codes, new_positions, filled,
):  # fmt: skip
    """As ``trie.index.table.grow_windows``, but never full."""
    waiting = np.empty(BLOCK, dtype=np.uint64)
    positions = np.empty(BLOCK, dtype=np.uint64)
    next_codes = np.empty(BLOCK, dtype=np.uint64)
    next_positions = np.empty(BLOCK, dtype=np.uint64)
    last_seed = np.int64(seed_end) - np.int64(k)
    end = np.uint64(stop)
    filled = before = np.uint64(filled)
    count = 0
    while count > 0 or state[0] < end:
        rolled = roll_block(bases, offsets, k, canonical, end, state, next_codes, next_positions)
        n = 0
        for j in range(rolled):
            code = next_codes[j]
            next_codes[n] = code
            next_positions[n] = next_positions[j]
            n += np.int64(_in_part(code, part, part_bits))
        for j in range(max(n, count)):
            if j < n:
                prefetch_far(words, next_codes[j] >> _WORD)
            if j < count:
                code = waiting[j]
                word = words[code >> _WORD]
                absent = (word >> (code & _INSIDE)) & _ONE == np.uint64(0)
                words[code >> _WORD] = word | (_ONE << (code & _INSIDE))
                position = positions[j]
                new_codes[filled] = code
                new_positions[filled] = np.int64(position)
                filled += np.uint64(absent)
                if events.size > 0:
                    seed = np.int64(position) <= last_seed
                    events[position] = MATCH + np.uint8(absent and not seed)
        waiting, next_codes = next_codes, waiting
        positions, next_positions = next_positions, positions
        count = n
    counts[part] += np.int64(filled - before)
    return np.int64(filled)


@njit(cache=True, nogil=True)
def _list_codes(words, codes):
    """Write the codes of all set bits, ascending."""
    count = 0
    for w in range(words.size):
        word = words[w]
        while word != np.uint64(0):
            codes[count] = (np.uint64(w) << _WORD) + trailing_zeros(word)
            word &= word - _ONE
            count += 1


def bitset_bytes(k: int) -> int:
    """Bytes of the bitset for k."""
    return max(64, 4**k // 8)


class KmerBitset:
    """A set of k-mer codes, k <= 15, with the methods of ``KmerTable``: no values, never full."""

    def __init__(self, k: int) -> None:
        self._words = aligned_words(bitset_bytes(k) // 8)
        self._counts = np.zeros(REGIONS, dtype=np.int64)

    def __len__(self) -> int:
        return int(self._counts.sum())

    def memory_bytes(self) -> int:
        """Bytes of the array."""
        return self._words.nbytes

    def codes(self) -> NDArray[np.uint64]:
        """The k-mer codes, ascending."""
        out = np.empty(len(self), dtype=np.uint64)
        _list_codes(self._words, out)
        return out

    def match(self, *windows: Any) -> None:
        _match_windows(self._words, *windows)

    def insert(self, *codes: Any) -> int:
        return int(_insert_codes(self._words, self._counts, *codes))

    def grow(self, *windows: Any) -> int:
        return int(_grow_windows(self._words, self._counts, *windows))

    def enlarge(self, threads: int = 1) -> None:
        """Never called: a bitset is never full."""
        raise NotImplementedError


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
