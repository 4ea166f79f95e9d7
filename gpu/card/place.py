"""Where something lies: one CUDA device of those that are used."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from gpu.card.intrinsics import SIMULATED, cuda


class OnCard:
    """What lies on the card of that ``number``; ``alone`` if it is the only one used."""

    def __init__(self, number: int, *, alone: bool) -> None:
        self.number = number
        self._alone = alone

    def active(self) -> AbstractContextManager[Any]:
        """Make this the current device in a ``with`` block."""
        # a thread's current device is the first one unless said
        if SIMULATED or (self._alone and self.number == 0):
            return nullcontext()
        return cuda.gpus[self.number]
