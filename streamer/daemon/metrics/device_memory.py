"""The memory of GPUs, asked for in a thread of its own: a GPU that hangs never answers."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress

# what a driver takes at most, unless something is wrong
_PATIENCE_SECONDS = 0.5

UsedAndSize = tuple[int, int]
"""Bytes in use, and bytes that there are."""


class DeviceMemory:
    """What was last known; several threads may ask."""

    def __init__(self) -> None:
        self._known: dict[int, UsedAndSize] = {}
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def read(self, cards: Sequence[int]) -> dict[int, UsedAndSize]:
        """By the numbers of GPUs, without those that were never known."""
        if not cards:
            return {}
        with self._lock:
            thread = self._thread
            if thread is None or not thread.is_alive():
                thread = threading.Thread(
                    target=self._ask, args=(cards,), name="device memory", daemon=True
                )
                # without one more thread what is known stays
                with suppress(RuntimeError):
                    thread.start()
                    self._thread = thread
        if thread is self._thread:
            thread.join(_PATIENCE_SECONDS)
        return {number: self._known[number] for number in cards if number in self._known}

    def fields(self, cards: Sequence[int]) -> dict[str, dict[str, int]]:
        """The same as a reply to ``status`` has it."""
        return {
            str(number): {"used_bytes": used, "size_bytes": size}
            for number, (used, size) in self.read(cards).items()
        }

    def _ask(self, cards: Sequence[int]) -> None:
        from gpu.card.device import memory_of

        for number in cards:
            try:
                self._known[number] = memory_of(number)
            except RuntimeError:
                # a GPU that fails is reported by whoever works with it
                self._known.pop(number, None)
