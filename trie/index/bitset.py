"""A growing set of short k-mers: one bit for each of the 4**k possible ones.

    word w, bit b      the k-mer with code 64 w + b
    4**k / 8 bytes     2 MB at k = 12, 8 MB at 13, 32 MB at 14, 128 MB at 15

A look-up reads one word of one cache line, and there is nothing to spill, double or compare; the
index takes this form as soon as it is no larger than the hash table of the same k-mers. Parts for
several writers are told by a hash of the cache line (512 codes), because canonical codes crowd in
the lower half.
"""

# mypy: no-check-untyped-defs
# (kernels are typed by numba, by the arguments of their first call)

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from trie.cpu.intrinsics import prefetch_far, trailing_zeros
from trie.cpu.jit import njit
from trie.cpu.vectors import aligned_words
from trie.index.buckets import ODD, REGION_BITS, REGIONS
from trie.index.table_kernels import MATCH, MISMATCH
from trie.windows import BLOCK, roll_block, start_state

MAX_BITSET_K: Final = 15
_WORD: Final = np.uint64(6)
_INSIDE: Final = np.uint64(63)
_ONE: Final = np.uint64(1)


@njit(cache=True, nogil=True, inline="always")
def _in_part(code, part, part_bits):
    region = ((code >> np.uint64(9)) * ODD) >> np.uint64(64 - REGION_BITS)
    return region >> np.uint64(REGION_BITS - part_bits) == np.uint64(part)


@njit(cache=True, nogil=True, inline="always")
def _bit(words, code):
    return (words[code >> _WORD] >> (code & _INSIDE)) & _ONE


@njit(cache=True, nogil=True)
def _match_windows(words, bases, offsets, k, canonical, start, stop, events):
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
def _find_codes(words, codes, found):
    limit = np.uint64(words.size)
    for first in range(0, codes.size, BLOCK):
        last = min(first + BLOCK, codes.size)
        for j in range(first, last):
            prefetch_far(words, min(codes[j] >> _WORD, limit - _ONE))
        for j in range(first, last):
            found[j] = codes[j] >> _WORD < limit and _bit(words, codes[j]) == _ONE


@njit(cache=True, nogil=True)
def _insert_codes(words, codes, part, part_bits, new):
    """Insert the codes of one part in order; ``new`` tells which were absent; how many were."""
    pending = np.empty(BLOCK, dtype=np.int64)
    added = 0
    for first in range(0, codes.size, BLOCK):
        count = 0
        for j in range(first, min(first + BLOCK, codes.size)):
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
    return added


@njit(cache=True, nogil=True)
def _grow_windows(
    words, bases, offsets, k, canonical, seed_end, stop, state, part, part_bits,
    events, new_codes, new_positions, filled,
):  # fmt: skip
    """As ``trie.index.table_kernels.grow_windows``, but there is always room."""
    waiting = np.empty(BLOCK, dtype=np.uint64)
    positions = np.empty(BLOCK, dtype=np.uint64)
    next_codes = np.empty(BLOCK, dtype=np.uint64)
    next_positions = np.empty(BLOCK, dtype=np.uint64)
    last_seed = np.int64(seed_end) - np.int64(k)
    end = np.uint64(stop)
    filled = np.uint64(filled)
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
    """A set of k-mer codes, k <= 15, with the methods of ``KmerTable`` (no values)."""

    with_values = False

    def __init__(self, k: int) -> None:
        if not 1 <= k <= MAX_BITSET_K:
            message = f"a bitset holds k-mers of 1 to {MAX_BITSET_K} symbols, not {k}"
            raise ValueError(message)
        self.k = k
        self._words = aligned_words(bitset_bytes(k) // 8)
        self._added = np.zeros(REGIONS, dtype=np.int64)

    def __len__(self) -> int:
        return int(self._added.sum())

    def memory_bytes(self) -> int:
        """Bytes of the array."""
        return self._words.nbytes

    def codes(self) -> NDArray[np.uint64]:
        """The k-mer codes, ascending."""
        out = np.empty(len(self), dtype=np.uint64)
        _list_codes(self._words, out)
        return out

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
        """Write the events of the windows that begin in [start, stop)."""
        _match_windows(self._words, bases, offsets, self.k, canonical, start, stop, events)

    def find(
        self, codes: NDArray[np.uint64], values: NDArray[np.uint32] | None
    ) -> NDArray[np.bool_]:
        """Whether each code is in the set."""
        found = np.empty(codes.size, dtype=np.bool_)
        _find_codes(self._words, codes, found)
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
        """Insert codes[first:] of one part, in order, to the end."""
        added = _insert_codes(self._words, codes[first:], part, part_bits, new[first:])
        self._added[part] += added
        return int(codes.size)

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
        """Insert the windows of one part in stream order; how many are new so far."""
        total = int(
            _grow_windows(
                self._words, bases, offsets, self.k, canonical, seed_end, stop, state, part,
                part_bits, events, new_codes, new_positions, filled,
            )
        )  # fmt: skip
        self._added[part] += total - filled
        return total

    def enlarge(self, threads: int = 1) -> None:
        """A bitset is never full."""
        message = "a bitset is never full"
        raise NotImplementedError(message)
