"""GPU memory: a budget, copies to and from pinned memory, and named buffers reused across calls.

numba's ``copy_to_device`` slices and compares both arrays first: 0.15 ms of Python before a call of
0.02. ``send`` and ``fetch`` ask the driver at once, in a context that the caller has looked up.
"""

import os
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.card.cuda_errors import CardMemoryError
from gpu.card.device import card_active
from gpu.card.intrinsics import SIMULATED, cuda

SHARE = 0.9
"""Share of the free memory used by default; the rest is for the driver and sorting."""

LIMIT = "STREAMER_DEVICE_BYTES"


def free_memory() -> int:
    """Bytes that may be used on the current device now: SHARE of the free memory.

    A process that shares the device has a limit in the environment, ``STREAMER_DEVICE_BYTES``.
    """
    context = cuda.current_context()
    if not SIMULATED:
        # numba frees dropped arrays in batches; until then they would count as in use
        context.deallocations.clear()
    limit = int(os.environ.get(LIMIT, 0)) or 1 << 62
    return int(min(SHARE * context.get_memory_info().free, limit))


def check_room(what: str, size: int, cards: Iterable[int], limit: int = 0) -> None:
    """Raise CardMemoryError if one of the devices has no ``size`` bytes for it, before it is built.

    limit: bytes that may be used, 0: as many as are free.
    """
    for number in cards:
        with card_active(number):
            room = min(free_memory(), limit or 1 << 62)
        if size > room:
            raise CardMemoryError(what, size, room)


class Budget:
    """Counts the bytes in use on the current device, up to ``limit``; 0: SHARE of free memory."""

    def __init__(self, limit: int = 0) -> None:
        free = free_memory()
        self.limit = min(limit or free, free)
        self._used = 0

    @property
    def left(self) -> int:
        """Bytes that may still be used."""
        return self.limit - self._used

    def take(self, what: str, size: int) -> None:
        """Count ``size`` more bytes; raise CardMemoryError if they exceed the limit."""
        self.check(what, size)
        self._used += size

    def check(self, what: str, size: int) -> None:
        """Raise CardMemoryError unless ``size`` more bytes are within the limit."""
        if size > self.left:
            raise CardMemoryError(what, size, self.left)

    def give(self, size: int) -> None:
        """Count ``size`` fewer bytes."""
        self._used -= size


if SIMULATED:

    def _to_gpu(there: Any, here: NDArray[Any], nbytes: int, stream: Any) -> None:
        there.copy_to_device(here[: there.size], stream=stream)

    def _to_host(here: NDArray[Any], there: Any, nbytes: int, stream: Any) -> None:
        size = nbytes // here.itemsize
        there[:size].copy_to_host(here[:size], stream=stream)

else:
    from numba.cuda.cudadrv.driver import device_to_host as _to_host
    from numba.cuda.cudadrv.driver import host_to_device as _to_gpu


def send(here: NDArray[Any], there: Any, stream: Any) -> None:
    """Queue the copy of the beginning of ``here``, which is contiguous, to all of ``there``."""
    nbytes = there.size * there.dtype.itemsize
    assert nbytes <= here.nbytes
    if nbytes:
        _to_gpu(there, here, nbytes, stream)


def fetch(there: Any, here: NDArray[Any], stream: Any, size: int | None = None) -> None:
    """Queue the copy of the first ``size`` elements (all) of ``there`` to the contiguous ``here``.

    Unlike a slice of ``there``, ``size`` takes no time.
    """
    size = there.size if size is None else size
    assert size <= min(there.size, here.size)
    if size:
        _to_host(here, there, size * here.itemsize, stream)


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
