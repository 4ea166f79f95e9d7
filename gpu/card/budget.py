"""The memory that may be used on a device; more raises CardMemoryError with the sizes."""

from __future__ import annotations

import os

from gpu.card.cuda_errors import CardMemoryError
from gpu.card.intrinsics import SIMULATED, cuda

SHARE = 0.9
"""The share of the free memory used without a limit; the rest is for the driver and sorting."""

LIMIT = "STREAMER_DEVICE_BYTES"


def free_memory() -> int:
    """Bytes that may be used on the current device now: SHARE of what is free.

    A process that shares the device has a limit in the environment, ``STREAMER_DEVICE_BYTES``.
    """
    context = cuda.current_context()
    if not SIMULATED:
        # numba frees dropped arrays in batches: they would count as in use
        context.deallocations.clear()
    limit = int(os.environ.get(LIMIT, 0)) or 1 << 62
    return int(min(SHARE * context.get_memory_info().free, limit))


class Budget:
    """Counts the bytes in use on the current device, up to ``limit``; 0: SHARE of what is free."""

    def __init__(self, limit: int = 0) -> None:
        free = free_memory()
        self.limit = min(limit or free, free)
        self._used = 0

    @property
    def left(self) -> int:
        """Bytes that may still be used."""
        return self.limit - self._used

    def take(self, what: str, size: int) -> None:
        """Count ``size`` bytes more; CardMemoryError if there is no room."""
        self.check(what, size)
        self._used += size

    def check(self, what: str, size: int) -> None:
        """CardMemoryError unless there is room for ``size`` bytes more."""
        if size > self.left:
            raise CardMemoryError(what, size, self.left)

    def give(self, size: int) -> None:
        """Count ``size`` bytes less."""
        self._used -= size
