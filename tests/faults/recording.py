"""A disk and SQLite files that record all operations on them, in order.

Each operation is a tuple: ``("make",)`` the directory, ``("create", name, file)``,
``("delete", name)``, ``("write", file, offset, data)``, ``("size", file, bytes)``,
``("sync", file)``, ``("sync names",)``, ``("sync parent",)``. Files are numbered, since a name can
be reused.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import apsw

from streamer.journal.disk import Disk
from streamer.journal.record_index import NAME

SYNCS = {
    "data": "of a data file after each group",
    "snapshot": "of a snapshot's file before the commit",
    "name of data": "of the directory after making a data file",
    "name of snapshot": "of the directory after making a snapshot's file",
    "name of directory": "of the directory's own name after making it",
    "switch": "of what an owner without syncs has left",
}
"""Every sync of the journal. Leaving one out must lose something.

The index is made from the data files: none of its own syncs is among them.
"""


class Log:
    """Operations in order, and the current files. ``left_out``: a sync of ``SYNCS``."""

    def __init__(self, directory: Path, left_out: str | None = None) -> None:
        self.directory = directory
        self.operations: list[tuple[Any, ...]] = []
        self.files: dict[str, int] = {}
        self.switching = False
        self._left_out = left_out
        self._number = 0

    def add(self, *operation: Any) -> None:
        """Record an operation."""
        self.operations.append(operation)

    def create(self, name: str) -> int:
        """Record a new file; returns its number."""
        self._number += 1
        self.files[name] = self._number
        self.add("create", name, self._number)
        return self._number

    def delete(self, name: str) -> None:
        """Record that a name was deleted."""
        if self.files.pop(name, None) is not None:
            self.add("delete", name)

    def sync(self, what: str, *operation: Any) -> None:
        """Record a sync, unless it is the one to leave out."""
        if self.switching and what not in ("index", "checkpoint", "rollback journal"):
            what = "switch"
        if what != self._left_out:
            self.add(*operation)


class RecordingDisk(Disk):
    """A disk whose operations are recorded."""

    def __init__(self, log: Log, vfs: str) -> None:
        self.vfs = vfs
        self._log = log
        self._open: dict[int, str] = {}
        self._last = ""

    def make_directory(self, directory: Path) -> None:
        if not directory.exists():
            self._log.add("make")
        super().make_directory(directory)

    def create(self, path: Path, size: int) -> int:
        fd = super().create(path, size)
        self._open[fd] = path.name
        self._last = "index" if path.name == NAME else _kind(path.name)
        file = self._log.create(path.name)
        if size:
            self._log.add("size", file, size)
        return fd

    def open(self, path: Path) -> int:
        fd = super().open(path)
        self._open[fd] = path.name
        return fd

    def write(self, fd: int, offset: int, data: Any) -> None:
        super().write(fd, offset, data)
        if len(data):
            self._log.add("write", self._log.files[self._open[fd]], offset, bytes(data))

    def sync(self, fd: int) -> None:
        name = self._open[fd]
        self._log.sync(_kind(name), "sync", self._log.files[name])

    def sync_directory(self, directory: Path) -> None:
        if directory == self._log.directory:
            self._log.sync(f"name of {self._last}", "sync names")
        else:
            self._log.sync("name of directory", "sync parent")

    def truncate(self, fd: int, size: int) -> None:
        super().truncate(fd, size)
        self._log.add("size", self._log.files[self._open[fd]], size)

    def delete(self, path: Path) -> None:
        super().delete(path)
        self._log.delete(path.name)


class RecordingFiles(apsw.VFS):
    """SQLite's files, recorded except for the shared memory.

    SQLite itself syncs the directory when it makes or deletes a rollback journal. Such syncs for
    its log are left out: the journal must not depend on them.
    """

    def __init__(self, log: Log, name: str) -> None:
        super().__init__(name, "")
        self.log = log

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        path = str(getattr(name, "filename", lambda: name)())
        created = not os.path.exists(path)
        file = _RecordingFile(self.log, name, flags)
        if created:
            self.log.create(file.name)
        return file

    def xDelete(self, path: str, sync: bool) -> None:
        super().xDelete(path, sync)
        self.log.delete(os.path.basename(path))
        if sync:
            self.log.add("sync names")


class _RecordingFile(apsw.VFSFile):
    def __init__(self, log: Log, name: Any, flags: list[int]) -> None:
        super().__init__("", name, flags)
        path = str(getattr(name, "filename", lambda: name)())
        self.name = os.path.basename(path)
        self._log = log

    def xWrite(self, data: bytes, offset: int) -> None:
        super().xWrite(data, offset)
        self._log.add("write", self._log.files[self.name], offset, bytes(data))

    def xTruncate(self, size: int) -> None:
        super().xTruncate(size)
        self._log.add("size", self._log.files[self.name], size)

    def xSync(self, flags: int) -> None:
        self._log.sync(_kind(self.name), "sync", self._log.files[self.name])
        if self.name.endswith("-journal"):
            self._log.add("sync names")


def _kind(name: str) -> str:
    """The name in ``SYNCS`` of a file's sync."""
    if name.startswith("records-"):
        return "data"
    if name.startswith("snapshot-"):
        return "snapshot"
    if name.endswith("-wal"):
        return "index"
    if name.endswith("-journal"):
        return "rollback journal"
    return "checkpoint"
