"""A growing set (or map to small integers) of k-mers: a hash table of cache-line buckets.

Kernels of the k-mer table: look-up, insertion, growth along a stream, doubling.

The layout, the bytes a look-up reads and the plain functions are in ``trie.index.buckets``. With a
table larger than the cache, speed depends on the number of cache lines in flight, so the kernels
always keep many: while the windows of one block are looked up, each loop iteration prefetches the
line of a window of the next block into the second-level cache (``prefetch_far``; 183 M random lines
per second and core against 133 M). The few look-ups that continue from a full bucket to the next
line wait in a list until that line has arrived (``_finish_late``).

Operations per window: about 10 to roll the codes, 3 for key and bucket, 1 prefetch, 8 to compare
and write; memory per window: one line, and the next line for 5 of 100 at the highest load.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from trie.cpu.intrinsics import popcount, prefetch_far, trailing_zeros
from trie.cpu.jit import njit
from trie.cpu.threads import run_ranges
from trie.cpu.vectors import aligned_words, equal_mask
from trie.index.buckets import (
    FREE,
    MIN_BUCKET_BITS,
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
from trie.windows import BLOCK, MATCH, MISMATCH, NO_SET, roll_block, start_state

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


@njit(cache=True, nogil=True)
def match_windows(keys, shift, stored, bases, offsets, k, canonical, start, stop, events, values):
    """Write the events of the windows that begin in [start, stop), zero so far, and their values.

    ``values`` may be empty, and must be for a table without values.
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
                count += 1
        for i in range(count):
            j = pending[i]
            key = key_of(codes[j])
            slot = find_slot(keys, shift, key)
            absent = keys[slot] != key
            keys[slot] = key
            new[j] = absent
            local[region_of(key)] += np.int64(absent)
            if absent and stored.size > 0:
                stored[slot] = values[j] if values.size > 0 else NO_SET
        first = last
    _store_counts(local, counts, part, part_bits)
    return first


@njit(cache=True, nogil=True)
def grow_windows(
    keys, shift, stored, counts, limit, bases, offsets, k, canonical, seed_end, stop,
    state, part, part_bits, events, new_codes, new_positions, filled,
):  # fmt: skip
    """Insert the windows of one part in stream order, from ``state`` on.

    New k-mers are appended to ``new_codes`` and ``new_positions``, which hold ``filled`` entries;
    returns the new number of entries. Ends at symbol ``stop``, or before it (see state[0]) if the
    table must double. ``events`` is written unless it is empty.
    """
    local = counts.copy()
    waiting = np.empty(BLOCK, dtype=np.uint64)
    positions = np.empty(BLOCK, dtype=np.uint64)
    next_keys = np.empty(BLOCK, dtype=np.uint64)
    next_positions = np.empty(BLOCK, dtype=np.uint64)
    resume = state.copy()
    last_seed = np.int64(seed_end) - np.int64(k)
    end = np.uint64(stop)
    filled = np.uint64(filled)
    count = 0
    while count > 0 or state[0] < end:
        if _tight(local, limit):
            state[:] = resume  # the waiting block is rolled again after the doubling
            break
        resume[:] = state
        rolled = roll_block(bases, offsets, k, canonical, end, state, next_keys, next_positions)
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
                if events.size > 0:
                    seed = np.int64(position) <= last_seed
                    events[position] = MATCH + np.uint8(absent and not seed)
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

        windows: bases, offsets, k, canonical, start, stop, events, values.
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
        offsets, k, canonical, seed_end, stop, state, part, part_bits, events, new_codes,
        new_positions, filled (entries of both so far).
        """
        table = (self._keys, self._shift, self._stored, self._counts, self._limit)
        return int(grow_windows(*table, *windows))
