"""A budget of device memory; exceeding it raises CardMemoryError with the sizes."""

from __future__ import annotations

import os

from gpu.card.cuda_errors import CardMemoryError
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
