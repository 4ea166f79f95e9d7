"""A machine's disk: what was written, which of it is synced, and its faults.

The kernel's view, ``files``, survives a kill. What survives a power cut follows the model of the
power cut tests: everything synced, and any part of what was not.
"""

from __future__ import annotations

import random

from streamer.journal.record import JournalFailed, JournalFull
from tests.faults.disk_model import DiskModel


class MachineDisk:
    """Files by name. full: nothing more can be written. failing: the next sync fails.

    cuts: the number of power cuts.
    """

    def __init__(self, chance: random.Random) -> None:
        self.files: dict[str, bytearray] = {}
        self.full = self.failing = False
        self._chance = chance
        self._begin({})

    def _begin(self, content: dict[str, bytes]) -> None:
        self.files = {name: bytearray(data) for name, data in content.items()}
        self._model = DiskModel(content)
        self._numbers = self._model.first_files()
        self._made = 0

    def create(self, name: str) -> None:
        """Make an empty file; its name is not synced."""
        self.files[name] = bytearray()
        self._made += 1
        self._numbers[name] = self._made
        self._model.do(("create", name, self._made))

    def delete(self, name: str) -> None:
        """Remove a file."""
        del self.files[name]
        self._model.do(("delete", name))

    def write(self, name: str, offset: int, data: bytes) -> None:
        """Write over existing content or at the end. JournalFull leaves half of it."""
        if self.full:
            self._write(name, offset, data[: len(data) // 2])
            raise JournalFull(f"{name}: no room")
        self._write(name, offset, data)

    def _write(self, name: str, offset: int, data: bytes) -> None:
        file = self.files[name]
        assert offset <= len(file), "a hole"
        file[offset : offset + len(data)] = data
        self._model.do(("write", self._numbers[name], offset, bytes(data)))

    def sync(self, name: str) -> None:
        """Sync the content. JournalFailed: written data may be lost."""
        if self.failing:
            self.failing = False
            # after a failed sync the kernel treats the pages as clean, and may drop them
            survived = self._model.after_cut(self._chance) or {}
            self.files[name] = bytearray(survived.get(name, b""))
            self._begin({name: bytes(data) for name, data in self.files.items()})
            raise JournalFailed(f"{name}: sync failed")
        self._model.do(("sync", self._numbers[name]))

    def sync_names(self) -> None:
        """Sync the names of all files."""
        self._model.do(("sync names",))

    def cut_power(self) -> None:
        """Cut the power: unsynced data survives in part."""
        self._begin(self._model.after_cut(self._chance) or {})

    def flip(self, name: str, offset: int, bit: int) -> None:
        """Flip a stored bit."""
        self.files[name][offset] ^= 1 << bit
        self._begin({name: bytes(data) for name, data in self.files.items()})
