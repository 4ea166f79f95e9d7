"""Objects as byte arrays, which Ray passes to all processes of a node without a copy.

Ray's arrays are read-only, for which numba would compile each kernel again. So arrays are rebuilt
over the same memory with their original flags: writable if they were. Nobody writes to them.
"""

from __future__ import annotations

import io
import pickle
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

Parts = list[NDArray[np.uint8]]
"""An object: its pickle, followed by the memory of its arrays."""


class _Pickler(pickle.Pickler):
    """Pickles locks as new locks, and memoryviews as arrays to view."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, type(threading.Lock())):
            return threading.Lock, ()
        if isinstance(obj, memoryview):
            return memoryview, (pickle.PickleBuffer(obj),)
        return NotImplemented


def packed(obj: Any) -> Parts:
    """Pack an object into parts; arrays are not copied."""
    buffers: list[pickle.PickleBuffer] = []
    file = io.BytesIO()
    _Pickler(file, protocol=5, buffer_callback=buffers.append).dump(obj)
    memory: list[Any] = [file.getvalue(), *(buffer.raw() for buffer in buffers)]
    return [np.frombuffer(one, dtype=np.uint8) for one in memory]


def unpacked(parts: Parts) -> Any:
    """Rebuild the object; its arrays are views of the parts, which must not be written to."""
    head, *rest = parts
    return pickle.loads(head.tobytes(), buffers=[np.asarray(_Memory(part)) for part in rest])


class _Memory:
    """Exposes the memory of an array as writable."""

    def __init__(self, array: NDArray[np.uint8]) -> None:
        self._array = array  # keeps it alive
        place = array.ctypes.data, False
        self.__array_interface__ = {**array.__array_interface__, "data": place}
