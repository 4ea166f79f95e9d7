"""The k-mer index of the engine: a bitset for short k-mers, a hash table for the others.

Exact matching of thesis 3.3.1, the growing dictionary of 3.3.9 and the reconciliation of 3.3.10:
every window of k symbols is a match or a mismatch, and a growing dictionary adds a mismatched k-mer
at once, so only the first window of a k-mer is a mismatch.

Several writers fill an index, and their new k-mers are merged into stream order. Each part holds
its new k-mers by ascending window position, and positions are distinct, so merging needs no
comparison: within 4,096 symbols (32 KB of codes, in L1 or L2) every part scatters its codes to
their positions, and one sweep gathers them. About 3 operations per new k-mer and 2 per symbol;
ranges of symbols are independent, each with its own thread.

The bitset has one bit for each of the 4**k possible k-mers:

    word w, bit b      the k-mer with code 64 w + b
    4**k / 8 bytes     2 MB at k = 12, 8 MB at 13, 32 MB at 14, 128 MB at 15

A look-up reads one word of one cache line, and there is nothing to spill, double or compare; the
index switches to this form as soon as it is no larger than the hash table of the same k-mers. A
hash of the cache line (512 codes) selects the writer's part, because canonical codes crowd in the
lower half.

The hash table has buckets of a cache line: the layout, the bytes a look-up reads and the plain
functions are in ``trie.index.buckets``. With a
table larger than the cache, speed depends on the number of cache lines in flight, so the kernels
always keep many: while the windows of one block are looked up, each loop iteration prefetches the
line of a window of the next block into the second-level cache (``prefetch_far``; 183 M random lines
per second and core against 133 M). The few look-ups that continue from a full bucket to the next
line wait in a list until that line has arrived (``_finish_late``).

Operations per window: about 10 to roll the codes, 3 for key and bucket, 1 prefetch, 8 to compare
and write; memory per window: one line, and the next line for 5 of 100 at the highest load.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from trie.codes import check_k
from trie.cpu.intrinsics import popcount, prefetch_far, trailing_zeros
from trie.cpu.jit import inner, njit
from trie.cpu.threads import run_all, run_each, run_ranges, split_range
from trie.cpu.vectors import aligned_words, equal_mask
from trie.index.buckets import (
    FREE,
    MIN_BUCKET_BITS,
    ODD,
    REGION_BITS,
    REGIONS,
    SLOTS,
    code_of,
    find_slot,
    find_spilled,
    home,
    in_part,
    key_of,
    region_of,
)
from trie.windows import BLOCK, GRAIN, MATCH, MISMATCH, NO_SET, check_batch, roll_block, start_state

_LATE: Final = 32
_STRAYS: Final = 512
_LAST: Final = np.uint64(7)


@njit(cache=True, nogil=True)
def _finish_late(keys, shift, late_keys, late_positions, count, events, stored, values):
    """Look up keys whose home bucket is full; ``values`` may be empty."""
    for i in range(count):
        key = late_keys[i]
        slot = find_spilled(keys, shift, home(key, shift), key)
        if keys[slot] == key:
            events[late_positions[i]] = MATCH
            if values.size:
                values[late_positions[i]] = stored[slot]
        else:
            events[late_positions[i]] = MISMATCH


@inner
def _unknown(known, codes, positions, count):
    """Keep the windows of a block that are not known to match; returns how many these are.

    known: events, or empty if nothing is known.
    """
    if known.size == 0:
        return count
    kept = 0
    for j in range(count):
        codes[kept], positions[kept] = codes[j], positions[j]
        kept += np.int64(known[positions[j]] != MATCH)
    return kept


@njit(cache=True, nogil=True)
def match_windows(
    keys, shift, stored, bases, offsets, k, canonical, start, stop, known, events, values
):
    """Write the events of the windows that begin in [start, stop), and their values.

    Those that are ``known`` to match stay as they are. ``values`` may be empty, and must be for a
    table without values.
    """
    one = np.uint64(1)
    codes = np.empty(BLOCK, dtype=np.uint64)
    positions = np.empty(BLOCK, dtype=np.uint64)
    next_codes = np.empty(BLOCK, dtype=np.uint64)
    next_positions = np.empty(BLOCK, dtype=np.uint64)
    late_keys = np.empty(_LATE, dtype=np.uint64)
    late_positions = np.empty(_LATE, dtype=np.uint64)
    late = np.uint64(0)
    hit_slots = np.empty(BLOCK, dtype=np.uint64)
    hit_positions = np.empty(BLOCK, dtype=np.uint64)
    with_values = values.size > 0
    end = min(stop + k - 1, bases.size)
    state = start_state(offsets, np.uint64(start))
    count = 0
    while count > 0 or state[0] < np.uint64(end):
        n = np.int64(
            roll_block(bases, offsets, k, canonical, end, state, next_codes, next_positions)
        )
        n = _unknown(known, next_codes, next_positions, n)
        hits = np.uint64(0)
        for j in range(max(n, count)):
            if j < n:
                key = key_of(next_codes[j])
                next_codes[j] = key
                prefetch_far(keys, home(key, shift))
            if j < count:
                key = codes[j]
                bucket = home(key, shift)
                mask = equal_mask(keys, bucket, key)
                position = positions[j]
                events[position] = MISMATCH - np.uint8(mask != 0)
                if with_values:
                    slot = bucket + np.uint64(trailing_zeros(mask)) if mask != 0 else np.uint64(0)
                    prefetch_far(stored, slot)
                    hit_slots[hits] = slot
                    hit_positions[hits] = position
                    hits += np.uint64(mask != 0)
                if mask == 0 and keys[bucket + _LAST] != FREE:
                    # most spill into the next line; the last bucket of a region does not
                    prefetch_far(keys, min(bucket + np.uint64(8), np.uint64(keys.size - 8)))
                    late_keys[late] = key
                    late_positions[late] = position
                    late += one
                    if late == np.uint64(_LATE):
                        _finish_late(
                            keys, shift, late_keys, late_positions, late, events, stored, values
                        )
                        late = np.uint64(0)
        for j in range(hits):
            values[hit_positions[j]] = stored[hit_slots[j]]
        codes, next_codes = next_codes, codes
        positions, next_positions = next_positions, positions
        count = n
    _finish_late(keys, shift, late_keys, late_positions, late, events, stored, values)


@njit(cache=True, nogil=True)
def _tight(counts, limit):
    for region in range(REGIONS):
        if counts[region] > limit:
            return True
    return False


@njit(cache=True, nogil=True)
def _store_counts(local, counts, part, part_bits):
    """Write back the counts of one part's regions, which no other thread writes."""
    each = REGIONS >> part_bits
    for region in range(part * each, (part + 1) * each):
        counts[region] = local[region]


@njit(cache=True, nogil=True)
def insert_codes(keys, shift, stored, counts, limit, codes, values, first, part, part_bits, new):
    """Insert codes[first:] of one part in order; ``new`` says which were absent.

    Returns where it stopped: at the end, or at the first code for which the table must double. A
    region has room for a whole block beyond its limit. ``values`` may be empty.
    """
    local = counts.copy()
    pending = np.empty(BLOCK, dtype=np.int64)
    while first < codes.size and not _tight(local, limit):
        last = min(first + BLOCK, codes.size)
        count = 0
        for j in range(first, last):
            key = key_of(codes[j])
            pending[count] = j
            if in_part(region_of(key), part, part_bits):
                prefetch_far(keys, home(key, shift))
                if stored.size > 0:
                    prefetch_far(stored, home(key, shift))
                count += 1
        for i in range(count):
            j = pending[i]
            key = key_of(codes[j])
            slot = find_slot(keys, shift, key)
            absent = keys[slot] != key
            keys[slot] = key
            new[j] = absent
            local[region_of(key)] += np.int64(absent)
            if stored.size > 0:
                if absent:
                    stored[slot] = values[j] if values.size > 0 else NO_SET
                elif values.size > 0:
                    values[j] = stored[slot]
        first = last
    _store_counts(local, counts, part, part_bits)
    return first


@njit(cache=True, nogil=True)
def grow_windows(
    keys, shift, stored, counts, limit, bases, offsets, k, canonical, known, stop,
    state, part, part_bits, new_codes, new_positions, filled,
):  # fmt: skip
    """Insert the windows of one part in stream order, from ``state`` on, but those ``known``.

    New k-mers are appended to ``new_codes`` and ``new_positions``, which hold ``filled`` entries;
    returns the new number of entries. Ends at symbol ``stop``, or before it (see state[0]) if the
    table must double.
    """
    local = counts.copy()
    waiting = np.empty(BLOCK, dtype=np.uint64)
    positions = np.empty(BLOCK, dtype=np.uint64)
    next_keys = np.empty(BLOCK, dtype=np.uint64)
    next_positions = np.empty(BLOCK, dtype=np.uint64)
    resume = state.copy()
    end = np.uint64(stop)
    filled = np.uint64(filled)
    count = 0
    while count > 0 or state[0] < end:
        if _tight(local, limit):
            state[:] = resume  # the waiting block is rolled again after the doubling
            break
        resume[:] = state
        rolled = roll_block(bases, offsets, k, canonical, end, state, next_keys, next_positions)
        rolled = _unknown(known, next_keys, next_positions, np.int64(rolled))
        n = 0
        for j in range(rolled):
            key = key_of(next_keys[j])
            next_keys[n] = key
            next_positions[n] = next_positions[j]
            n += np.int64(in_part(region_of(key), part, part_bits))
        for j in range(max(n, count)):
            if j < n:
                prefetch_far(keys, home(next_keys[j], shift))
            if j < count:
                key = waiting[j]
                position = positions[j]
                slot = find_slot(keys, shift, key)
                absent = keys[slot] != key
                if absent:  # a hit writes nothing: 1.5 times as fast if most windows hit
                    keys[slot] = key
                    if stored.size > 0:
                        stored[slot] = NO_SET
                    new_codes[filled] = code_of(key)
                    new_positions[filled] = np.int64(position)
                    filled += np.uint64(1)
                    local[region_of(key)] += 1
        waiting, next_keys = next_keys, waiting
        positions, next_positions = next_positions, positions
        count = n
    _store_counts(local, counts, part, part_bits)
    return np.int64(filled)


@njit(cache=True, nogil=True)
def _place(keys, shift, stored, key, value):
    """Put a key that the table lacks into the first free slot, starting at its home bucket."""
    bucket = home(key, shift)
    free = equal_mask(keys, bucket, FREE)
    if free != 0:
        slot = bucket + np.uint64(trailing_zeros(free))
    else:
        slot = find_spilled(keys, shift, bucket, key)
    keys[slot] = key
    if stored.size > 0:
        stored[slot] = value


@njit(cache=True, nogil=True)
def double_regions(old_keys, old_stored, keys, shift, stored, first, last):
    """Move the regions first..last-1 of a table into an empty one of twice the size.

    Old bucket i splits into 2i and 2i + 1; their fill counts stay in a register, since comparing a
    whole line right after a store into it would wait for the store. Keys that had spilled out of
    their bucket are placed one by one, a few hundred at a time.
    """
    strays = np.empty(_STRAYS, dtype=np.uint64)
    stray_values = np.empty(_STRAYS, dtype=np.uint32)
    stray = 0
    with_values = stored.size > 0
    eight = np.uint64(8)
    size = np.uint64(old_keys.size // REGIONS)
    for bucket in range(np.uint64(first) * size, np.uint64(last) * size, eight):
        occupied = eight - np.uint64(popcount(equal_mask(old_keys, bucket, FREE)))
        target = bucket << np.uint64(1)
        # the low byte counts the keys of bucket 2i, the next one those of 2i + 1
        fill = np.uint64(8 - popcount(equal_mask(keys, target, FREE)))
        fill |= np.uint64(8 - popcount(equal_mask(keys, target + eight, FREE))) << eight
        for i in range(bucket, bucket + occupied):
            key = old_keys[i]
            half = ((key >> shift) & np.uint64(1)) << np.uint64(3)
            at = (fill >> half) & np.uint64(255)
            if home(key, shift) == target + half and at < eight:
                slot = target + half + at
                keys[slot] = key
                fill += np.uint64(1) << half
                if with_values:
                    stored[slot] = old_stored[i]
                continue
            strays[stray] = key
            if with_values:
                stray_values[stray] = old_stored[i]
            stray += 1
        if stray > _STRAYS - SLOTS:
            for i in range(stray):
                _place(keys, shift, stored, strays[i], stray_values[i])
            stray = 0
    for i in range(stray):
        _place(keys, shift, stored, strays[i], stray_values[i])


@njit(cache=True, nogil=True)
def list_codes(keys, codes):
    """Write the code of every key, in table order; returns their number."""
    count = np.uint64(0)
    for i in range(keys.size):
        if keys[i] != FREE:
            codes[count] = code_of(keys[i])
            count += np.uint64(1)
    return count


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
        list_codes(self._keys, out)
        return out

    def enlarge(self, threads: int = 1) -> None:
        """Double the table: one forward pass over the old and the new array."""
        old_keys, old_stored = self._keys, self._stored
        self._allocate(self._bucket_bits + 1)
        new = self._keys, self._shift, self._stored
        run_ranges(
            lambda a, b: double_regions(old_keys, old_stored, *new, a, b),
            0, REGIONS, threads,
        )  # fmt: skip

    def match(self, *windows: Any) -> None:
        """Write the events, and values, of the windows that begin in [start, stop).

        windows: bases, offsets, k, canonical, start, stop, known, events, values.
        """
        match_windows(self._keys, self._shift, self._stored, *windows)

    def insert(self, *codes: Any) -> int:
        """Insert codes[first:] of one part in order; returns where to resume once enlarged.

        codes: codes, values (may be empty), first, part, part_bits, new (says which were absent).
        """
        table = (self._keys, self._shift, self._stored, self._counts, self._limit)
        return int(insert_codes(*table, *codes))

    def grow(self, *windows: Any) -> int:
        """Insert windows of one part in stream order from ``state`` on; how many are new.

        ``state[0]`` below ``stop`` means that the table must be enlarged first. windows: bases,
        offsets, k, canonical, known, stop, state, part, part_bits, new_codes, new_positions, filled
        (entries of both so far).
        """
        table = (self._keys, self._shift, self._stored, self._counts, self._limit)
        return int(grow_windows(*table, *windows))


_SPAN: Final = 4096


@njit(cache=True, nogil=True)
def _merge_range(
    part_codes, part_positions, start, stop, cursors, ends, out_codes, out_positions, filled
):
    """Gather the new k-mers of all parts whose windows begin in [start, stop)."""
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


def merge_parts(
    codes: NDArray[np.uint64],
    positions: NDArray[np.int64],
    filled: NDArray[np.int64],
    first: int,
    last: int,
    out_codes: NDArray[np.uint64],
    out_positions: NDArray[np.int64],
    threads: int,
) -> None:
    """Gather the new k-mers of all parts (rows of ``codes`` and ``positions``) by position.

    Their windows begin in [first, last).
    """
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
                _merge_range, codes, positions, low, high, cursors, ends, out_codes, out_positions,
                int(cursors.sum()),
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
def _match_windows(words, bases, offsets, k, canonical, start, stop, known, events, values):
    """Events of the windows that begin in [start, stop), but those ``known`` to match."""
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
        n = _unknown(known, next_codes, next_positions, n)
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
    """As ``trie.index.kmer_index.insert_codes``, but never full."""
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
    words, counts, bases, offsets, k, canonical, known, stop, state, part, part_bits,
    new_codes, new_positions, filled,
):  # fmt: skip
    """As ``trie.index.kmer_index.grow_windows``, but never full."""
    waiting = np.empty(BLOCK, dtype=np.uint64)
    positions = np.empty(BLOCK, dtype=np.uint64)
    next_codes = np.empty(BLOCK, dtype=np.uint64)
    next_positions = np.empty(BLOCK, dtype=np.uint64)
    end = np.uint64(stop)
    filled = before = np.uint64(filled)
    count = 0
    while count > 0 or state[0] < end:
        rolled = roll_block(bases, offsets, k, canonical, end, state, next_codes, next_positions)
        rolled = _unknown(known, next_codes, next_positions, np.int64(rolled))
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
# symbols between two merges, or codes a part between two; what they add meanwhile stays in L3
_SLAB = 1 << 18
NOTHING_KNOWN = np.empty(0, dtype=np.uint8)


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
        k-mer already present keeps its value, which is written to ``values``. Without ``values`` a
        new k-mer gets NO_SET.
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

        step = _SLAB << part_bits
        for start in range(0, codes.size, step):
            slab = slice(start, start + step)
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
        known: NDArray[np.uint8] = NOTHING_KNOWN,
        events: NDArray[np.uint8] | None = None,
        values: NDArray[np.uint32] | None = None,
    ) -> NDArray[np.uint8]:
        """Look up every window of a batch without changing the index (thesis 3.3.1).

        ``bases`` uint8[total], ``offsets`` int64[reads + 1]. Returns ``events`` uint8[total]: at
        the first symbol of each window 1 for a match, 2 for a mismatch, 0 elsewhere. ``values``
        uint32[total], if given, receives the k-mer's value or NO_SET. ``known``, if given, are
        events to change: only mismatches are looked up. Raises BatchShapeError (a ValueError) if
        the offsets do not describe the bases or a result array has another size.
        """
        bases, offsets = check_batch(bases, offsets)
        events = known if known.size else _results(events, bases.size, np.uint8, 0)
        if values is not None:
            values = _results(values, bases.size, np.uint32, NO_SET)
        out = values if values is not None and self._with_values else NO_VALUES

        def match(start: int, stop: int) -> None:
            self._store.match(bases, offsets, self.k, canonical, start, stop, known, events, out)

        run_ranges(match, 0, bases.size, threads, grain=GRAIN, align=64)
        return events

    def grow(
        self,
        bases: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        *,
        canonical: bool,
        threads: int = 1,
        known: NDArray[np.uint8] = NOTHING_KNOWN,
        start: int = 0,
        stop: int | None = None,
    ) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """Add every k-mer of a batch, of the windows inside the symbols [start, stop).

        Returns the new k-mers (codes uint64[n]) and the first symbols of their first windows
        (int64[n]), in stream order. So a window mismatches if it is one of these; all others match.
        known: uint8[total], events: windows that match are left out. Errors as in ``match``.
        Results do not depend on ``threads`` or on where a stream is cut (thesis 3.3.9-3.3.10).
        """
        bases, offsets = check_batch(bases, offsets)
        end = bases.size if stop is None else stop
        part_bits = _part_bits(threads, end - start)
        states = np.tile(start_state(offsets, np.uint64(start)), (1 << part_bits, 1))

        def grow_to(stop: int, *rows: NDArray[Any]) -> NDArray[np.int64]:
            """Let every part process the windows that end before ``stop``; counts of new k-mers."""
            filled = np.zeros(len(states), dtype=np.int64)

            def work(part: int) -> None:
                codes, positions = rows
                filled[part] = self._store.grow(
                    bases, offsets, self.k, canonical, known, stop, states[part], part,
                    part_bits, codes[part], positions[part], filled[part],
                )  # fmt: skip

            self._in_parts(work, states[:, 0], stop, threads)
            return filled

        # pages that are never written take no memory
        new_codes = np.empty(end - start, dtype=np.uint64)
        new_positions = np.empty(end - start, dtype=np.int64)
        shape = (len(states), min(_SLAB, end - start) if part_bits else 0)
        rows = np.empty(shape, dtype=np.uint64), np.empty(shape, dtype=np.int64)
        total = 0
        for begin in range(start, end, _SLAB):
            until = min(begin + _SLAB, end)
            left = new_codes[total:], new_positions[total:]
            if part_bits == 0:
                filled = grow_to(until, left[0][np.newaxis], left[1][np.newaxis])
            else:
                filled = grow_to(until, *rows)
                first = max(start, begin - self.k + 1)
                merge_parts(*rows, filled, first, max(first, until - self.k + 1), *left, threads)
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
        raise ValueError(f"results need a contiguous array of {size} {np.dtype(dtype).name}")
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
