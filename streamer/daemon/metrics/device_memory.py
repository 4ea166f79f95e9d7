"""The memory of GPUs, queried in its own thread because a GPU that hangs never answers."""

import threading
from collections.abc import Sequence
from contextlib import suppress

# how long a driver takes at most, unless something is wrong
_PATIENCE_SECONDS = 0.5

UsedAndSize = tuple[int, int]
"""Bytes in use, and bytes in total."""


class DeviceMemory:
    """The last known values; several threads may ask."""

    def __init__(self) -> None:
        self._known: dict[int, UsedAndSize] = {}
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def read(self, cards: Sequence[int]) -> dict[int, UsedAndSize]:
        """The memory of each GPU, by number, without those that never answered."""
        if not cards:
            return {}
        with self._lock:
            thread = self._thread
            if thread is None or not thread.is_alive():
                thread = threading.Thread(
                    target=self._ask, args=(cards,), name="device memory", daemon=True
                )
                # if no thread can be started, the last values stay
                with suppress(RuntimeError):
                    thread.start()
                    self._thread = thread
        if thread is self._thread:
            thread.join(_PATIENCE_SECONDS)
        return {number: self._known[number] for number in cards if number in self._known}

    def fields(self, cards: Sequence[int]) -> dict[str, dict[str, int]]:
        """The same in the form of a reply to ``status``."""
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
                # a GPU failure is reported by the thread that uses it
                self._known.pop(number, None)
