"""Named device buffers, reused across calls: allocating takes longer than some kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.card.copies import fetch
from gpu.card.intrinsics import cuda


class Workspace:
    """Arrays on the current device and pinned arrays on the host, one per name.

    stream: for kernels and copies that use them; 0 is the default stream.
    """

    def __init__(self, stream: Any = 0) -> None:
        self.stream = stream
        self._arrays: dict[str, Any] = {}

    def array(self, name: str, size: int, dtype: Any, *, exact: bool = False) -> Any:
        """An uninitialized array of at least that size, or exactly that size if ``exact``."""
        array = self._arrays.get(name)
        if (
            array is None
            or array.size < size
            or array.dtype != dtype
            or (exact and array.size != size)
        ):
            self._arrays.pop(name, None)  # before the new one is allocated
            array = self._arrays[name] = cuda.device_array(max(1, size), dtype)
        return array

    def shaped(self, name: str, shape: tuple[int, ...], dtype: Any) -> Any:
        """An uninitialized array of that shape."""
        size = int(np.prod(shape))
        return self.array(name, size, dtype)[:size].reshape(*shape)

    def upload(self, name: str, values: NDArray[Any]) -> Any:
        """A copy of the values on the device."""
        there = self.shaped(name, values.shape, values.dtype)
        if values.size:
            there.copy_to_device(np.ascontiguousarray(values))
        return there

    def on_host(self, name: str, size: int, dtype: Any) -> Any:
        """A pinned array of at least that size; a new one is a quarter larger."""
        array = self._arrays.get(name)
        if array is None or array.size < size:
            self._arrays.pop(name, None)
            array = self._arrays[name] = cuda.pinned_array(size + size // 4, dtype)
        return array

    def fetch_now(self, array: Any, on_host: NDArray[Any]) -> None:
        """Copy from the device to pinned memory; wait until all work of the stream is done."""
        fetch(array, on_host, self.stream)
        if self.stream:
            self.stream.synchronize()
