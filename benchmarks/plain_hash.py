"""A straightforward baseline: an open-addressing hash set of k-mers, one window at a time.

Linear probing, at most half full, no prefetch, no buckets; only used as a peer in benchmarks.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from trie.cpu.jit import njit
from trie.windows import roll_block, start_roll

_FREE: Final = np.uint64(0xFFFFFFFFFFFFFFFF)
_ODD: Final = np.uint64(0xD6E8FEB86659FD93)


@njit(cache=True, nogil=True, inline="always")
def _slot(table, shift, code):
    last = np.uint64(table.size - 1)
    slot = (code * _ODD) >> shift
    while table[slot] != code and table[slot] != _FREE:
        slot = (slot + np.uint64(1)) & last
    return slot


@njit(cache=True, nogil=True)
def _shift(table):
    shift = 64
    while np.int64(1) << (64 - shift) < table.size:
        shift -= 1
    return np.uint64(shift)


@njit(cache=True, nogil=True)
def _look_up(table, bases, offsets, k, events):
    shift = _shift(table)
    state, codes, positions = start_roll(offsets, np.uint64(0))
    while state[0] < np.uint64(bases.size):
        count = roll_block(bases, offsets, k, True, bases.size, state, codes, positions)
        for j in range(count):
            found = table[_slot(table, shift, codes[j])] != _FREE
            events[positions[j]] = 1 if found else 2


@njit(cache=True, nogil=True)
def _grow(table, bases, offsets, k, events):
    shift = _shift(table)
    held = 0
    state, codes, positions = start_roll(offsets, np.uint64(0))
    while state[0] < np.uint64(bases.size):
        count = roll_block(bases, offsets, k, True, bases.size, state, codes, positions)
        for j in range(count):
            slot = _slot(table, shift, codes[j])
            events[positions[j]] = 1
            if table[slot] == _FREE:
                table[slot] = codes[j]
                events[positions[j]] = 2
                held += 1
        if 2 * held > table.size:
            old = table
            table = np.full(2 * old.size, _FREE, dtype=np.uint64)
            shift = _shift(table)
            for i in range(old.size):
                if old[i] != _FREE:
                    table[_slot(table, shift, old[i])] = old[i]
    return table


class PlainHashSet:
    """The set of canonical k-mers; ``expected`` of them fit without doubling."""

    def __init__(self, k: int, *, expected: int = 0) -> None:
        self.k = k
        slots = 1 << max(10, (2 * expected + 256).bit_length())
        self._table = np.full(slots, _FREE, dtype=np.uint64)

    def match(
        self, bases: NDArray[np.uint8], offsets: NDArray[np.int64], events: NDArray[np.uint8]
    ) -> None:
        """Write the event of every window."""
        _look_up(self._table, bases, offsets, self.k, events)

    def grow(
        self, bases: NDArray[np.uint8], offsets: NDArray[np.int64], events: NDArray[np.uint8]
    ) -> None:
        """Write the event of every window, and add the k-mers that mismatch."""
        self._table = _grow(self._table, bases, offsets, self.k, events)
