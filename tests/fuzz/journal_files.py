"""Damaged files of a journal: it is refused, or reports the damage, or reads the same.

Whatever happens to its index, it reads the same.

An input is a list of changes: the file, the operation, the place, and a byte.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path

from streamer.errors import StreamerError
from streamer.journal.record_index import NAME
from tests.fuzz.targets import OfBytes
from tests.streamer.journal.kit import open_small, picture, small_journal, verify

_CHANGE = 6
_MOST_CHANGES = 6


class JournalFiles(OfBytes):
    """The target: a small journal with every kind of content."""

    name = "journal"

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(prefix="fuzz-")
        self._made = Path(self.folder.name) / "made"
        small_journal(self._made, snapshot=5)
        self._files = {path.name: path.read_bytes() for path in sorted(self._made.iterdir())}
        self._names = [name for name, content in self._files.items() if content]
        self._wanted = picture(self._made)[0]

    def _write(self, files: dict[str, bytes]) -> None:
        for path in self._made.iterdir():  # in another folder, it would be another stream
            path.unlink()
        for name, content in files.items():
            (self._made / name).write_bytes(content)

    def take(self, data: bytes) -> str:
        """Open a damaged journal, and read everything in it."""
        files = dict(self._files)
        for at in range(0, min(len(data), _CHANGE * _MOST_CHANGES), _CHANGE):
            _change(files, self._names, data[at : at + _CHANGE].ljust(_CHANGE, b"\0"))
        self._write(files)
        found, notes = None, list[str]()
        with suppress(StreamerError):
            found, notes = picture(self._made)
        if found == self._wanted:
            return "the same"
        changed = {name for name in files if files[name] != self._files[name]}
        assert not all(name.startswith(NAME) for name in changed), "the data are whole"
        if found is None:
            return "refused"
        with closing(open_small(self._made, durability="os")) as journal:
            assert notes or verify(journal), "damage that is not reported"
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
