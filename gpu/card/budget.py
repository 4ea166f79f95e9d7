"""The memory that may be taken on a card; what goes beyond it is refused with the sizes."""

from __future__ import annotations

from gpu.card.errors import CardMemoryError
from gpu.card.intrinsics import SIMULATED, cuda

SHARE = 0.9
"""Of the free memory, where no limit is given; the rest is for the driver and for sorting."""


def free_memory() -> int:
    """Bytes that may be taken on the current device now: SHARE of what is free."""
    context = cuda.current_context()
    if not SIMULATED:
        # numba frees what has ended only when a lot has: it would count as in use
        context.deallocations.clear()
    return int(min(SHARE * context.get_memory_info().free, 1 << 62))


class Budget:
    """Counts what is held on the current card. ``limit`` bytes; 0: nine tenths of what is free."""

    def __init__(self, limit: int = 0) -> None:
        free = free_memory()
        self.limit = min(limit or free, free)
        self.held = 0

    @property
    def left(self) -> int:
        """Bytes that may still be taken."""
        return self.limit - self.held

    def take(self, what: str, size: int) -> None:
        """Count ``size`` bytes more; CardMemoryError if they cannot be had."""
        self.check(what, size)
        self.held += size

    def check(self, what: str, size: int) -> None:
        """CardMemoryError unless ``size`` bytes more can be had."""
        if size > self.left:
            raise CardMemoryError(what, size, self.left)

    def give(self, size: int) -> None:
        """Count ``size`` bytes less."""
        self.held -= size
