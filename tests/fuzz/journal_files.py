"""Damaged files of a journal: it is refused, or reports the damage, or reads the same.

An input is a list of changes: the file, the operation, the place, and a byte.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from streamer.errors import StreamerError
from tests.fuzz.targets import OfBytes
from tests.streamer.journal.kit import open_small, picture, small_journal

_CHANGE = 6
_MOST_CHANGES = 6


class JournalFiles(OfBytes):
    """The target: a small journal with every kind of content."""

    name = "journal"

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(prefix="fuzz-")
        made = Path(self.folder.name) / "made"
        small_journal(made, snapshot=5)
        for left in made.glob("index.sqlite-*"):
            left.unlink()  # the database is closed, so the main file has everything
        self._files = {path.name: path.read_bytes() for path in sorted(made.iterdir())}
        self._names = [name for name, content in self._files.items() if content]
        self._copy = Path(self.folder.name) / "copy"
        self._write(self._files)
        self._wanted = picture(self._copy)

    def _write(self, files: dict[str, bytes]) -> None:
        shutil.rmtree(self._copy, ignore_errors=True)
        self._copy.mkdir(mode=0o700)
        for name, content in files.items():
            (self._copy / name).write_bytes(content)

    def take(self, data: bytes) -> str:
        """Open a damaged journal, and read everything in it."""
        files = dict(self._files)
        for at in range(0, min(len(data), _CHANGE * _MOST_CHANGES), _CHANGE):
            _change(files, self._names, data[at : at + _CHANGE].ljust(_CHANGE, b"\0"))
        self._write(files)
        try:
            found: Any = picture(self._copy)
        except StreamerError:
            return "refused"
        if found == self._wanted:
            return "the same"
        journal = open_small(self._copy, durability="os")
        try:
            assert list(journal.verify()), "damage that is not reported"
        finally:
            journal.close()
        return "reported"

    def seeds(self) -> list[bytes]:
        """A change of each kind in each file."""
        return [bytes((file, kind, 0, 80, 1, 1)) for file in range(8) for kind in range(4)]

    def maker(self, corpus: Sequence[bytes]) -> Callable[[random.Random], None]:
        """Some changes."""

        def step(rng: random.Random) -> None:
            self.one(rng.randbytes(_CHANGE * rng.choice((1, 1, 1, 2, 4))))

        return step


def _change(files: dict[str, bytes], names: Sequence[str], change: bytes) -> None:
    """Flip a bit, replace a byte, truncate the file, or overwrite some bytes with zeros."""
    name = names[change[0] % len(names)]
    content = bytearray(files[name])
    if not content:
        return
    at = int.from_bytes(change[2:5], "big") % len(content)
    match change[1] % 8:
        case 0 | 1 | 2 | 3 | 4:
            content[at] ^= 1 << change[5] % 8
        case 5:
            content[at] = change[5]
        case 6:
            content[at : at + 1 + change[5]] = bytes(min(1 + change[5], len(content) - at))
        case 7:
            del content[at:]
    files[name] = bytes(content)
