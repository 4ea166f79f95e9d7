"""Names that come again: a read ID stands for one read, so two of them deserve a line.

A table of 64-bit hashes (FNV-1a) finds them, with open addressing and at most half full. At 64 MiB,
which is four million names, it begins anew: a run may be of any length.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from streamer.sequences.packed_names import PackedNames
from trie.cpu.jit import njit

_SLOTS, _MOST_SLOTS = 1 << 14, 1 << 23
_BASIS: Final = np.uint64(0xCBF29CE484222325)
_PRIME: Final = np.uint64(0x100000001B3)
_HALF: Final = np.uint64(32)
_ONE: Final = np.uint64(1)


class RepeatedNames:
    """Names of reads in the order in which they come; the first that comes again is told."""

    def __init__(self) -> None:
        self._slots = np.zeros(0, np.uint64)
        self._names = 0
        self._told = False

    def first(self, names: PackedNames) -> int:
        """The index of the first name that came before, here or earlier; -1 if none, or told."""
        if self._told or not len(names):
            return -1
        self._make_room(len(names))
        at = int(_take(names.memory, names.bounds, self._slots))
        self._names += len(names)
        if at >= 0:
            self._told = True
            self._slots = self._slots[:0].copy()
        return at

    def line(self, names: Sequence[str]) -> str:
        """What is to be told of these names, for people; empty if nothing."""
        assert isinstance(names, PackedNames)
        at = self.first(names)
        if at < 0:
            return ""
        return f"the name {names[at]} comes again: both reads count; further names are not reported"

    def _make_room(self, more: int) -> None:
        if 2 * (self._names + more) <= self._slots.size:
            return
        if 2 * (self._names + more) > _MOST_SLOTS:
            # the names before are forgotten
            self._slots = self._slots[:0]
            self._names = 0
        size = _SLOTS
        while size < 2 * (self._names + more):
            size *= 2
        before, self._slots = self._slots, np.zeros(size, np.uint64)
        _move(before, self._slots)


@njit(cache=True, nogil=True)
def _place(value, slots):
    """Where a hash stands, or the free slot that is for it."""
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
def _take(memory, bounds, slots):
    """Note names; the first that is noted already, else -1. 0 marks a free slot: hashes are odd."""
    for name in range(len(bounds)):
        value = _BASIS
        for i in range(bounds[name, 0], bounds[name, 1]):
            value = (value ^ np.uint64(memory[i])) * _PRIME
        value = (value ^ (value >> _HALF)) | _ONE
        at = _place(value, slots)
        if slots[at]:
            return name
        slots[at] = value
    return -1
