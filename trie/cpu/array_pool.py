"""A pool that reuses the memory of large arrays.

A new large array consists of fresh pages, and faulting them in costs more than filling it: half of
the time of a search that found 1.9 M rows in 64 M letters. So one search reuses the memory of the
previous one, and the producer's next batch that of a batch already sent. Sizes are rounded up to a
power of two; pages that are never written take no memory.

Allocation scans for freed blocks; there are no finalizers. Python would report and then drop an
interrupt that arrives during one.
"""

import itertools
import threading
import weakref
from collections import OrderedDict, defaultdict, deque
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trie.cpu.threads import usable_cores

POOL_BYTES = max(1 << 27, usable_cores() * (24 << 20))
"""Limit on all blocks in the pool, in use or free: enough for a batch on every core."""

LEAST = 1 << 16  # smaller arrays come from the allocator, so small results stay small
_LINE = 64
_LOOKS = 16  # blocks of a size to try, the least recently allocated first


class _Owner:
    """The base of all arrays in a block; it is freed with the last view."""

    __slots__ = ("__array_interface__", "__weakref__", "block")

    def __init__(self, kind: int, block: NDArray[np.uint8], start: int) -> None:
        self.block = block
        self.__array_interface__ = {
            "version": 3,
            "typestr": "|u1",
            "shape": (1 << kind,),
            "data": (start, False),
        }


class _Block(NamedTuple):
    """The log2 of a size, memory of that size from ``start`` on, and its current or last owner."""

    kind: int
    block: NDArray[np.uint8]
    start: int
    owner: weakref.ref[_Owner]


class _Blocks:
    """The pool: blocks by number, least recently allocated first."""

    def __init__(self) -> None:
        self.blocks: OrderedDict[int, _Block] = OrderedDict()
        self.lock = threading.Lock()
        """Never waited for: a finalizer or signal handler may run while its own thread holds it."""
        self._of_kind: defaultdict[int, deque[int]] = defaultdict(deque)
        self._numbers = itertools.count()
        self._bytes = 0

    def allocate(self, kind: int) -> _Owner:
        """Memory of that size, from the pool if a block is free."""
        if 1 << kind > POOL_BYTES or not self.lock.acquire(blocking=False):
            return _Owner(kind, *_fresh(kind))
        try:
            block, start = self._free(kind) or _fresh(kind)
            owner = _Owner(kind, block, start)
            number = next(self._numbers)
            self.blocks[number] = _Block(kind, block, start, weakref.ref(owner))
            self._of_kind[kind].append(number)
            self._bytes += 1 << kind
            while self._bytes > POOL_BYTES:
                self._bytes -= 1 << self.blocks.popitem(last=False)[1].kind
            return owner
        finally:
            self.lock.release()

    def _free(self, kind: int) -> tuple[NDArray[np.uint8], int] | None:
        """Take an unused block out of the pool."""
        numbers = self._of_kind[kind]
        for _ in range(min(len(numbers), _LOOKS)):
            number = numbers.popleft()
            entry = self.blocks.get(number)
            if entry is None:  # dropped from the pool
                continue
            if entry.owner() is None:
                del self.blocks[number]
                self._bytes -= 1 << kind
                return entry.block, entry.start
            numbers.append(number)
        return None


def _fresh(kind: int) -> tuple[NDArray[np.uint8], int]:
    block = np.empty((1 << kind) + _LINE, dtype=np.uint8)
    address: int = block.__array_interface__["data"][0]
    return block, address + -address % _LINE


_pool = _Blocks()


def empty(size: int, dtype: Any) -> NDArray[Any]:
    """An uninitialized array of that size and dtype (no objects).

    It begins on a cache line if it has LEAST bytes.
    """
    dtype = np.dtype(dtype)
    nbytes = size * dtype.itemsize
    if nbytes < LEAST:
        return np.empty(nbytes, dtype=np.uint8).view(dtype)
    return np.asarray(_pool.allocate((nbytes - 1).bit_length()))[:nbytes].view(dtype)
