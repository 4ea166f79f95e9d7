"""Disk access of a journal: the seam where tests substitute a disk that records or fails."""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from streamer.journal import record
from trie.new_file import make_private

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error numbers of an OSError that ends once there is room."""

_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)

# not about stored data: this process lacks descriptors, memory or permissions
_NO_MEANS = (*_NO_DESCRIPTORS, errno.ENOMEM, errno.EACCES, errno.EPERM)

_CALL_BYTES = 1 << 30  # Linux has a limit of 2 GiB per call
_DIRECT = getattr(os, "O_DIRECT", 0)


class Disk:
    """File operations by path or descriptor; they raise the system's OSError.

    vfs: the name of SQLite's file layer, "" for the default.
    """

    vfs = ""

    def make_directory(self, directory: Path) -> None:
        """Create a private directory and its parents, unless it exists."""
        missing = [path for path in directory.parents if not path.exists()]
        make_private(directory)
        for path in missing:
            self.sync_directory(path.parent)

    def create(self, path: Path, size: int) -> int:
        """Create a private file of ``size`` reserved bytes, or none; return its descriptor."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            if size:
                os.posix_fallocate(fd, 0, size)
        except OSError:
            os.close(fd)
            self.delete(path)
            raise
        return fd

    def open(self, path: Path) -> int:
        """Open a file for reading and writing; return its descriptor."""
        return os.open(path, os.O_RDWR)

    def bypass_cache(self, fd: int) -> None:
        """Make writes of whole pages from aligned memory bypass the page cache, if possible."""
        with suppress(OSError):
            fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | _DIRECT)

    def write(self, fd: int, offset: int, data: record.Frame) -> None:
        """Write all bytes at a place."""
        view = memoryview(data)
        while view:
            # a nearly full disk writes less than requested, without an error
            try:
                written = os.pwrite(fd, view[:_CALL_BYTES], offset)
            except OSError as error:
                if error.errno != errno.EINVAL or not _use_cache(fd):
                    raise
                continue
            if not written:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            offset, view = offset + written, view[written:]

    def sync(self, fd: int) -> None:
        """Return once the content is on disk."""
        os.fdatasync(fd)

    def sync_directory(self, directory: Path) -> None:
        """Return once the names in a directory are on disk; it must be readable."""
        try:
            fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        except PermissionError:
            return
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def truncate(self, fd: int, size: int) -> None:
        """Truncate a file to ``size`` bytes."""
        os.ftruncate(fd, size)

    def delete(self, path: Path) -> None:
        """Delete a file if it exists."""
        with suppress(FileNotFoundError):
            path.unlink()


def _use_cache(fd: int) -> bool:
    """Stop bypassing the page cache, after an unaligned write; return whether it was bypassed."""
    flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    fcntl.fcntl(fd, fcntl.F_SETFL, flags & ~_DIRECT)
    return bool(flags & _DIRECT)


def leads_to(path: Path, there: os.stat_result) -> bool:
    """Return whether a path is that of an open file or directory."""
    try:
        return os.path.samestat(there, path.stat())
    except OSError:
        return False


@contextmanager
def storing(path: Path, *, sync: bool = False) -> Iterator[None]:
    """Convert errors of storing to ``path``: JournalFull if more room helps, else JournalFailed.

    sync: no room helps then, as written data may be lost, whatever a second sync returns.
    """
    try:
        yield
    except OSError as error:
        if error.errno in NO_ROOM and not sync:
            raise full(path) from error
        # raised where a file is opened, so before anything was written or synced
        if error.errno in _NO_DESCRIPTORS:
            why = f"{error.strerror}: end some clients, or raise the limit (ulimit -n)"
            raise record.JournalFull(f"{path}: {why}") from error
        raise failed(path, error) from error


def unread(
    path: Path, error: OSError, what: str = "cannot be read", **place: int | None
) -> record.JournalError:
    """The error for a failed read: JournalDamage, or JournalUnread if it may be temporary."""
    problem = f"{what}: {os.strerror(error.errno or 0)}"
    if error.errno in _NO_MEANS:
        return record.JournalUnread(f"{path}: {problem}: try again")
    return record.JournalDamage(problem, file=str(path), **place)


def full(path: Path) -> record.JournalFull:
    """Return the error for a full disk."""
    return record.JournalFull(f"{path}: no room on the disk: delete something, or lower keep_bytes")


def failed(path: Path, error: Exception) -> record.JournalFailed:
    """Return the error for a failed write."""
    what = error.strerror if isinstance(error, OSError) else str(error)
    return record.JournalFailed(
        f"{path}: cannot be stored: {what}: check the disk, then start again"
    )
