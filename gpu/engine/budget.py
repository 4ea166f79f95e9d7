"""The memory that may be taken on a card; what goes beyond it is refused with the sizes."""

from __future__ import annotations

from gpu.engine.errors import CardMemoryError
from gpu.intrinsics import cuda

SHARE = 0.9
"""Of the free memory, where no limit is given; the rest is for the driver and for sorting."""


class Budget:
    """Counts what is held on the current card. ``limit`` bytes; 0: nine tenths of what is free."""

    def __init__(self, limit: int = 0) -> None:
        free = cuda.current_context().get_memory_info().free
        self.limit = int(min(limit or SHARE * free, SHARE * free, 1 << 62))
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
