"""Memory for arrays that stays with the process when they are dropped.

A large array that is made anew comes in fresh pages, whose faults cost more than to fill it: half
of the time where 1.9 M rows were found in 64 M letters. So what a search has written to waits here
for the next, and what a producer has sent for its next batch. Sizes are rounded up, as pages that
nothing is written to take no memory.

Nothing is called when an array ends: Python would report an interrupt that comes meanwhile, and
forget it. Who needs memory looks which arrays have ended.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

KEPT = 1 << 27
"""Bytes of all blocks that are known here, and so of those that wait, at most."""

LEAST = 1 << 16
"""Arrays of fewer bytes come from the allocator: a result of few rows must not hold more."""

_LINE = 64


class _Lent:
    """What the arrays in a block have as their base; it ends with the last view."""

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


class _Known(NamedTuple):
    """The logarithm of a size, a block of it and a line, and for whom it is or was."""

    kind: int
    block: NDArray[np.uint8]
    lent: weakref.ref[_Lent]


_known: list[_Known] = []
"""Blocks that are lent or wait; what was lent last stands last."""

_lock = threading.Lock()
"""Nobody waits for it: a finalizer or a handler of signals may come while its thread has it."""


def _fresh(kind: int) -> NDArray[np.uint8]:
    return np.empty((1 << kind) + _LINE, dtype=np.uint8)


def _waiting(kind: int) -> NDArray[np.uint8] | None:
    """A block that nobody has any more, which is no longer known."""
    for place, known in enumerate(_known):
        if known.kind == kind and known.lent() is None:
            return _known.pop(place).block
    return None


def _lend(kind: int) -> _Lent:
    """A block; what has been known longest is forgotten for it where there is too much."""
    if 1 << kind > KEPT or not _lock.acquire(blocking=False):
        return _Lent(kind, _fresh(kind))
    try:
        block = _waiting(kind)
        lent = _Lent(kind, _fresh(kind) if block is None else block)
        _known.append(_Known(kind, lent.block, weakref.ref(lent)))
        while sum(1 << known.kind for known in _known) > KEPT:
            _known.pop(0)
        return lent
    finally:
        _lock.release()


def empty(size: int, dtype: Any) -> NDArray[Any]:
    """An array of that size and dtype (no objects), not set.

    It begins on a cache line if it has LEAST bytes.
    """
    dtype = np.dtype(dtype)
    nbytes = size * dtype.itemsize
    if nbytes < LEAST:
        return np.empty(nbytes, dtype=np.uint8).view(dtype)
    return np.asarray(_lend((nbytes - 1).bit_length()))[:nbytes].view(dtype)
