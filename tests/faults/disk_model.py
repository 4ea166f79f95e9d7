"""The content of a disk after a power cut: all that was synced, and any part of what was not.

Each sector of 512 bytes may have any version since the last sync, independent of the others; each
file any length it had; each name any state it had. Real file systems are kinder: they keep some
order, but do not promise any.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

SECTOR = 512

Choice = Callable[[int], int]
"""Chooses how many of a number of unsynced changes survive."""


class _File:
    """The synced content, and the operations since."""

    def __init__(self, content: bytes = b"") -> None:
        self.content = bytearray(content)
        self.since: list[tuple[Any, ...]] = []

    def sync(self) -> None:
        self.content = bytearray(self.after(lambda changes: changes))
        self.since.clear()

    def after(self, choose: Choice) -> bytes:
        """The content after a power cut."""
        if not self.since:
            return bytes(self.content)
        sizes = [len(self.content)]
        sectors: dict[int, list[tuple[int, bytes]]] = {}
        for what, *change in self.since:
            if what == "size":
                sizes.append(change[0])
                continue
            offset, data = change
            sizes.append(max(sizes[-1], offset + len(data)))
            begin = 0
            while begin < len(data):
                sector, within = divmod(offset + begin, SECTOR)
                part = data[begin : begin + SECTOR - within]
                sectors.setdefault(sector, []).append((offset + begin, part))
                begin += len(part)
        size = sizes[choose(len(sizes) - 1)]
        after = self.content.ljust(max(sizes), b"\0")
        for parts in sectors.values():
            for offset, part in parts[: choose(len(parts))]:
                after[offset : offset + len(part)] = part
        return bytes(after[:size])


class DiskModel:
    """Follows operations (``recording``) and computes what a cut leaves of the directory."""

    def __init__(self, content: dict[str, bytes] | None) -> None:
        """content: that of each file of a fully synced directory; None if there is no directory."""
        self._named = content is not None
        self._made = content is not None
        self._files = {-n: _File(data) for n, data in enumerate((content or {}).values(), 1)}
        self._names: dict[str, int] = dict(zip(content or {}, self._files, strict=True))
        self._changes: list[tuple[str, int | None]] = []

    def first_files(self) -> dict[str, int]:
        """The numbers of the initial files."""
        return dict(self._names)

    def do(self, operation: tuple[Any, ...]) -> None:
        """Follow an operation."""
        match operation:
            case ("make",):
                self._made = True
            case ("sync parent",):
                self._named = self._made
            case ("create", name, file):
                self._files[file] = _File()
                self._changes.append((name, file))
            case ("delete", name):
                self._changes.append((name, None))
            case ("sync names",):
                self._names = self._names_after(lambda changes: changes)
                self._changes.clear()
            case ("sync", file):
                self._files[file].sync()
            case (what, file, *change):
                self._files[file].since.append((what, *change))

    def after_cut(self, chance: random.Random) -> dict[str, bytes] | None:
        """The content of each file after a cut; None if there is no directory."""
        choose = _choices(chance)
        if not self._named and not choose(1):
            return None
        names = self._names_after(choose)
        return {name: self._files[file].after(choose) for name, file in names.items()}

    def _names_after(self, choose: Choice) -> dict[str, int]:
        states: dict[str, list[int | None]] = {}
        for name, file in self._changes:
            states.setdefault(name, [self._names.get(name)]).append(file)
        names: dict[str, int | None] = dict(self._names)
        for name, files in states.items():
            names[name] = files[choose(len(files) - 1)]
        return {name: file for name, file in names.items() if file is not None}


def _choices(chance: random.Random) -> Choice:
    """A way to choose for a whole cut: nothing, everything, or a random part survives."""
    kind = chance.randrange(6)
    if kind == 0:
        return lambda changes: 0
    if kind == 1:
        return lambda changes: changes
    share = (0.05, 0.5, 0.8, 0.97)[kind - 2]

    def choose(changes: int) -> int:
        if not changes or chance.random() < share:
            return changes
        return chance.randrange(changes)

    return choose
