"""Memory for arrays that stays with the process when they are dropped.

A large array that is made anew comes in fresh pages, whose faults cost more than to fill it: half
of the time where 1.9 M rows were found in 64 M letters. So what a search has written to waits here
for the next, and what a producer has sent for its next batch. Sizes are rounded up, as pages that
nothing is written to take no memory.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

KEPT = 1 << 27
"""Bytes that wait at most."""

LEAST = 1 << 16
"""Arrays of fewer bytes come from the allocator: a result of few rows must not hold more."""

_LINE = 64

_waiting: list[tuple[int, NDArray[np.uint8]]] = []
"""The logarithm of a size, and a block of it and a line; what came last stands last."""

_lock = threading.Lock()
"""Nobody waits for it: arrays may end, by a collection of garbage, while their thread has it."""


def _give(kind: int, block: NDArray[np.uint8]) -> None:
    """Keep a block, unless somebody gives or takes one; what has waited longest goes for it."""
    if not _lock.acquire(blocking=False):
        return
    try:
        _waiting.append((kind, block))
        while sum(1 << kind for kind, _ in _waiting) > KEPT:
            _waiting.pop(0)
    finally:
        _lock.release()


def _take(kind: int) -> NDArray[np.uint8]:
    if _lock.acquire(blocking=False):
        try:
            for place in reversed(range(len(_waiting))):
                if _waiting[place][0] == kind:
                    return _waiting.pop(place)[1]
        finally:
            _lock.release()
    return np.empty((1 << kind) + _LINE, dtype=np.uint8)


class _Lent:
    """What an array has as its base; it ends with the last view."""

    def __init__(self, kind: int, block: NDArray[np.uint8]) -> None:
        self._kind = kind
        self._block = block
        start = block.ctypes.data
        self.__array_interface__ = {
            "version": 3,
            "typestr": "|u1",
            "shape": (1 << kind,),
            "data": (start + -start % _LINE, False),
        }

    def __del__(self, give: Any = _give) -> None:
        # by name the function may be gone when the program ends
        give(self._kind, self._block)


def empty(size: int, dtype: Any) -> NDArray[Any]:
    """An array of that size and dtype (no objects), not set.

    It begins on a cache line if it has LEAST bytes.
    """
    dtype = np.dtype(dtype)
    nbytes = size * dtype.itemsize
    if nbytes < LEAST:
        return np.empty(nbytes, dtype=np.uint8).view(dtype)
    kind = (nbytes - 1).bit_length()
    return np.asarray(_Lent(kind, _take(kind)))[:nbytes].view(dtype)
