"""A growing set of short k-mers: one bit for each of the 4**k possible ones.

    word w, bit b      the k-mer with code 64 w + b
    4**k / 8 bytes     2 MB at k = 12, 8 MB at 13, 32 MB at 14, 128 MB at 15

A look-up reads one word of one cache line, and there is nothing to spill, double or compare; the
index switches to this form as soon as it is no larger than the hash table of the same k-mers. A
hash of the cache line (512 codes) selects the writer's part, because canonical codes crowd in the
lower half.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from trie.cpu.intrinsics import prefetch_far, trailing_zeros
from trie.cpu.jit import njit
from trie.cpu.vectors import aligned_words
from trie.index.buckets import ODD, REGIONS, in_part, region_of
from trie.windows import BLOCK, MATCH, MISMATCH, roll_block, start_state

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
    """As ``trie.index.table_kernels.insert_codes``, but never full."""
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
    """As ``trie.index.table_kernels.grow_windows``, but never full."""
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
