"""One of the CUDA devices of an engine, and its streams."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from gpu.card.budget import Budget
from gpu.card.device import card_active
from gpu.card.intrinsics import cuda


@dataclass(frozen=True, slots=True)
class CardShare:
    """A device by ``number``, and how much of it an engine uses.

    alone: the engine uses no other device. memory_bytes: 0 for nine tenths of the free memory.
    """

    number: int
    alone: bool
    streams: int
    memory_bytes: int


class StreamSlot:
    """A stream; subclasses add the buffers of a chunk. ``number``: its index on the device."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.stream = cuda.stream()


SlotT = TypeVar("SlotT", bound=StreamSlot)


class StreamCard(Generic[SlotT]):
    """A device with its budget and slots; subclasses add what all its chunks share."""

    def __init__(self, share: CardShare, make_slot: Callable[[int, Budget], SlotT]) -> None:
        self._share = share
        with self.active():
            self.budget = Budget(share.memory_bytes)
            self.slots = [make_slot(number, self.budget) for number in range(share.streams)]

    def active(self) -> AbstractContextManager[Any]:
        """Make this the current device in a ``with`` block."""
        return card_active(self._share.number, alone=self._share.alone)

    def close(self) -> None:
        """Free the memory."""
        self.slots.clear()
