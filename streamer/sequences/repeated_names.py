"""Detect repeated names: a read ID identifies one read, so a second use deserves a warning.

The names' 64-bit hashes are kept in an open-addressing table, at most half full. At 16 MiB, which
is a million names, it starts over, since a run may be of any length.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from streamer.sequences.read_batch import PackedNames
from trie.cpu.intrinsics import prefetch, word_at
from trie.cpu.jit import njit

_SLOTS, _MOST_SLOTS = 1 << 16, 1 << 21
_AHEAD: Final = 16  # names whose slots are prefetched
_PRIME: Final = np.uint64(0x9E3779B97F4A7C15)
_HALF: Final = np.uint64(32)
_ONE: Final = np.uint64(1)


class RepeatedNames:
    """Checks names of reads in the order in which they come; reports the first repetition only."""

    def __init__(self) -> None:
        self._slots = np.zeros(0, np.uint64)
        self._names = 0
        self._told = False

    def first(self, names: PackedNames) -> int:
        """Return the index of the first repeated name; -1 if none, or one was reported before."""
        if self._told or not len(names):
            return -1
        self._make_room(len(names))
        hashes = np.empty(len(names), np.uint64)
        at = int(_take(names.memory, names.bounds, self._slots, hashes))
        self._names += len(names)
        if at >= 0:
            self._told = True
            self._slots = self._slots[:0].copy()
        return at

    def line(self, names: Sequence[str]) -> str:
        """Return the warning for these names; empty if there is none."""
        assert isinstance(names, PackedNames)
        at = self.first(names)
        if at < 0:
            return ""
        return f"the name {names[at]} comes again: both reads count; further names are not reported"

    def _make_room(self, more: int) -> None:
        if 2 * (self._names + more) <= self._slots.size:
            return
        if 2 * (self._names + more) > _MOST_SLOTS:
            # forget the names before
            self._slots = self._slots[:0]
            self._names = 0
        size = _SLOTS
        while size < 2 * (self._names + more):
            size *= 2
        before, self._slots = self._slots, np.zeros(size, np.uint64)
        _move(before, self._slots)


@njit(cache=True, nogil=True)
def _place(value, slots):
    """Return the slot of a hash, or the free slot for it."""
    most = slots.size - 1
    at = np.int64(value >> _HALF) & most
    while slots[at] and slots[at] != value:
        at = (at + 1) & most
    return at


@njit(cache=True, nogil=True)
def _move(slots, to):
    for i in range(slots.size):
        if slots[i]:
            to[_place(slots[i], to)] = slots[i]


@njit(cache=True, nogil=True)
def _hash(memory, first, stop):
    """Hash a name, eight bytes at a time; the hash is odd, as 0 marks a free slot."""
    value = np.uint64(stop - first) * _PRIME
    if stop - first < 8:
        for i in range(first, stop):
            value = (value ^ np.uint64(memory[i])) * _PRIME
            value ^= value >> _HALF
    else:
        for i in range(first, stop, 8):
            value = (value ^ word_at(memory, min(i, stop - 8))) * _PRIME
            value ^= value >> _HALF
    return value | _ONE


@njit(cache=True, nogil=True)
def _take(memory, bounds, slots, hashes):
    """Add names; return the first one already known, else -1. hashes: uint64, one per name."""
    most = slots.size - 1
    for name in range(len(bounds)):
        hashes[name] = _hash(memory, bounds[name, 0], bounds[name, 1])
    for name in range(len(bounds)):
        if name + _AHEAD < len(bounds):
            prefetch(slots, np.int64(hashes[name + _AHEAD] >> _HALF) & most)
        at = _place(hashes[name], slots)
        if slots[at]:
            return name
        slots[at] = hashes[name]
    return -1
