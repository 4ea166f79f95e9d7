"""The growing set of k-mers of one card (layout and kernels: gpu/exact/kmer_set_kernels.py)."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.card.budget import Budget
from gpu.card.intrinsics import cuda
from gpu.card.kernel_cache import jit
from gpu.exact import kmer_set_kernels as kernels

SLOT_BYTES = 16
LOAD = 0.6
"""The table doubles before more of its slots than this could be taken."""

MODEST = 16
"""A table that takes less than this part of the memory grows in large steps."""

FIRST_BITS = 12
_PIECE = 1 << 22


@cache
def kernel(name: str, k: int, canonical: bool) -> Any:
    """The compiled kernel of that name; ``add``, ``rehash`` and ``wipe`` are the same for all k."""
    return jit(kernels.sources(k, canonical)[name][0])


def grid(threads: int) -> int:
    """Blocks for so many threads."""
    return max(1, -(-threads // kernels.THREADS))


def bits_for(kmers: int) -> int:
    """Bits of a slot number in the smallest table for so many k-mers."""
    return max(FIRST_BITS, int(np.ceil(np.log2(max(1, kmers) / LOAD))))


class KmerSet:
    """The k-mers known so far, with their values, on the current card.

    canonical: a window stands for the smaller of its code and that of its reverse complement.
    Everything is queued on the stream given. ``known`` k-mers are in for certain; windows in flight
    may have added more, which the caller counts.
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
        kernel("wipe", 1, False)[grid(2 << bits), kernels.THREADS, stream](self.table)

    @property
    def nbytes(self) -> int:
        """Bytes of the table."""
        return SLOT_BYTES << self._bits

    def room(self, more: int) -> bool:
        """Whether ``more`` windows can be put in as the table is."""
        return min(self.known + more, 4**self.k) <= LOAD * (1 << self._bits)

    def enlarge(self, more: int, stream: Any) -> None:
        """Make room for ``more`` windows; nothing else may be using the table.

        Raises CardMemoryError, and the set stays as it was, if the larger table does not fit
        beside the old one.
        """
        old, old_size = self.table, self.nbytes
        # eight times as large while that takes little of the card, then twice
        large = SLOT_BYTES << (self._bits + 3)
        step = 3 if large <= min(self._budget.limit // MODEST, self._budget.left) else 1
        wanted = bits_for(min(self.known + more, 4**self.k))
        self._allocate(max(min(self._bits + step, bits_for(4**self.k)), wanted), stream)
        slots = old.size // 2
        kernel("rehash", 1, False)[grid(slots), kernels.THREADS, stream](
            old, self.table, self.shift
        )
        stream.synchronize()
        self._budget.give(old_size)

    def add(self, codes: NDArray[np.uint64], values: NDArray[np.uint64], stream: Any) -> None:
        """Put codes (uint64[n]) in with their values (uint64[n]); there must be room. Waits.

        ``known`` is left to the caller, who knows which of them are new.
        """
        sent = 16 * min(codes.size, _PIECE)
        self._budget.take("k-mers on their way into the set", sent)
        for start in range(0, codes.size, _PIECE):
            part = slice(start, start + _PIECE)
            on_card = cuda.to_device(np.ascontiguousarray(codes[part]), stream=stream)
            theirs = cuda.to_device(np.ascontiguousarray(values[part]), stream=stream)
            kernel("add", 1, False)[grid(on_card.size), kernels.THREADS, stream](
                on_card, theirs, self.table, self.shift
            )
            stream.synchronize()
        self._budget.give(sent)

    def codes(self) -> NDArray[np.uint64]:
        """All k-mer codes, ascending: uint64[known]; nothing may be under way."""
        found = []
        for start in range(0, self.table.size, _PIECE):
            keys = self.table[start : start + _PIECE].copy_to_host()[::2]
            found.append(keys[keys != kernels.EMPTY])
        return np.sort(np.concatenate(found))

    def launch(self, name: str, windows: int, stream: Any, *arguments: Any) -> None:
        """Queue a kernel that has a thread a window."""
        run = kernel(name, self.k, self.canonical)
        run[grid(windows), kernels.THREADS, stream](*arguments)
