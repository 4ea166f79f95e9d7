"""Memory of large arrays that the process reuses.

A new large array comes in fresh pages, and their faults cost more than filling it: half of the time
of a search that found 1.9 M rows in 64 M letters. So the memory of one search serves the next, and
that of a batch that was sent the producer's next batch. Sizes are rounded up to a power of two;
pages that nothing writes to take no memory.

Allocation scans for freed blocks; there are no finalizers. Python would report and forget an
interrupt that comes during one.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trie.cpu.threads import usable_cores

POOL_BYTES = max(1 << 27, usable_cores() * (24 << 20))
"""Of all blocks in the pool, in use or free: as many as batches that all cores work on need."""

LEAST = 1 << 16  # smaller arrays come from the allocator: a result of few rows must not occupy more
_LINE = 64


class _Owner:
    """The base of all arrays in a block; it ends with the last view."""

    __slots__ = ("__array_interface__", "__weakref__", "block")

    def __init__(self, kind: int, block: NDArray[np.uint8]) -> None:
        self.block = block
        start = block.ctypes.data
        self.__array_interface__ = {
            "version": 3,
            "typestr": "|u1",
            "shape": (1 << kind,),
            "data": (start + -start % _LINE, False),
        }


class _Block(NamedTuple):
    """The logarithm of a size, memory of it and a line, and who uses or used it last."""

    kind: int
    block: NDArray[np.uint8]
    owner: weakref.ref[_Owner]


_blocks: list[_Block] = []  # least recently allocated first

_lock = threading.Lock()
"""Never waited for: a finalizer or a signal handler may run while its own thread has it."""


def _free(kind: int) -> NDArray[np.uint8] | None:
    """Take an unused block out of the pool."""
    for place, one in enumerate(_blocks):
        if one.kind == kind and one.owner() is None:
            return _blocks.pop(place).block
    return None


def _allocate(kind: int) -> _Owner:
    size = (1 << kind) + _LINE
    if 1 << kind > POOL_BYTES or not _lock.acquire(blocking=False):
        return _Owner(kind, np.empty(size, dtype=np.uint8))
    try:
        block = _free(kind)
        owner = _Owner(kind, np.empty(size, dtype=np.uint8) if block is None else block)
        _blocks.append(_Block(kind, owner.block, weakref.ref(owner)))
        while sum(1 << one.kind for one in _blocks) > POOL_BYTES:
            _blocks.pop(0)
        return owner
    finally:
        _lock.release()


def empty(size: int, dtype: Any) -> NDArray[Any]:
    """An uninitialized array of that size and dtype (no objects).

    It begins on a cache line if it has LEAST bytes.
    """
    dtype = np.dtype(dtype)
    nbytes = size * dtype.itemsize
    if nbytes < LEAST:
        return np.empty(nbytes, dtype=np.uint8).view(dtype)
    return np.asarray(_allocate((nbytes - 1).bit_length()))[:nbytes].view(dtype)
