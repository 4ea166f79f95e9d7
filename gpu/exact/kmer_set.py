"""The growing set of k-mers of one GPU (layout and kernels: gpu/exact/kmer_set_kernels.py)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.card.budget import Budget
from gpu.card.intrinsics import cuda
from gpu.card.launch import made, plain, with_threads
from gpu.exact import kmer_set_kernels as kernels

SLOT_BYTES = 16
LOAD = 0.6  # the table grows above this share of used slots
MODEST = 16  # a table below 1 / MODEST of the memory grows in large steps
FIRST_BITS = 12
_PIECE = 1 << 22


def bits_for(kmers: int) -> int:
    """Bits of a slot number in the smallest table for that number of k-mers."""
    return max(FIRST_BITS, int(np.ceil(np.log2(max(1, kmers) / LOAD))))


class KmerSet:
    """The k-mers known so far, with their values, on the current device.

    canonical: a window counts as the smaller of itself and its reverse complement. Work is queued
    on the given stream. ``known``: k-mers in the set, counted by the caller; windows in flight may
    have added more.
    """

    def __init__(self, k: int, canonical: bool, expected: int, budget: Budget, stream: Any) -> None:
        self.k = k
        self.canonical = canonical
        self.known = 0
        self._budget = budget
        self._allocate(bits_for(min(expected, 4**k)), stream)

    def _allocate(self, bits: int, stream: Any) -> None:
        size = SLOT_BYTES << bits
        self._budget.take(f"the set of k-mers ({1 << bits} slots)", size)
        self._bits = bits
        self.shift = np.uint64(64 - bits)
        self.table = cuda.device_array(2 << bits, np.uint64)
        _run(kernels.wipe, 2 << bits, stream, self.table)

    @property
    def nbytes(self) -> int:
        """Bytes of the table."""
        return SLOT_BYTES << self._bits

    def room(self, more: int) -> bool:
        """Whether the table has room for ``more`` windows."""
        return min(self.known + more, 4**self.k) <= LOAD * (1 << self._bits)

    def enlarge(self, more: int, stream: Any) -> None:
        """Make room for ``more`` windows; nothing else may use the table meanwhile.

        Raises CardMemoryError, and leaves the set unchanged, if the larger table does not fit
        beside the old one.
        """
        old, old_size = self.table, self.nbytes
        # grow eightfold while that takes little memory, then double
        large = SLOT_BYTES << (self._bits + 3)
        step = 3 if large <= min(self._budget.limit // MODEST, self._budget.left) else 1
        wanted = bits_for(min(self.known + more, 4**self.k))
        self._allocate(max(min(self._bits + step, bits_for(4**self.k)), wanted), stream)
        _run(kernels.rehash, old.size // 2, stream, old, self.table, self.shift)
        stream.synchronize()
        self._budget.give(old_size)

    def add(self, codes: NDArray[np.uint64], values: NDArray[np.uint64], stream: Any) -> None:
        """Insert codes (uint64[n]) with their values (uint64[n]) and wait; there must be room.

        The caller knows which of them are new and counts them in ``known``.
        """
        sent = 16 * min(codes.size, _PIECE)
        self._budget.take("k-mers on their way into the set", sent)
        for start in range(0, codes.size, _PIECE):
            part = slice(start, start + _PIECE)
            on_card = cuda.to_device(np.ascontiguousarray(codes[part]), stream=stream)
            theirs = cuda.to_device(np.ascontiguousarray(values[part]), stream=stream)
            _run(kernels.add, on_card.size, stream, on_card, theirs, self.table, self.shift)
            stream.synchronize()
        self._budget.give(sent)

    def codes(self) -> NDArray[np.uint64]:
        """All k-mer codes, ascending: uint64[known]; no chunk may be in flight."""
        found = []
        for start in range(0, self.table.size, _PIECE):
            keys = self.table[start : start + _PIECE].copy_to_host()[::2]
            found.append(keys[keys != kernels.EMPTY])
        return np.sort(np.concatenate(found))

    def launch(self, make: Any, windows: int, stream: Any, *arguments: Any) -> None:
        """Queue the kernel of ``make`` (kmer_set_kernels.py) with one thread per window."""
        kernel = made(make, self.k, self.canonical)
        with_threads(kernel, windows, kernels.THREADS, stream)(*arguments)


def _run(function: Any, threads: int, stream: Any, *arguments: Any) -> None:
    with_threads(plain(function), threads, kernels.THREADS, stream)(*arguments)
