"""Atomic file replacement: write a temporary file, rename it into place once complete.

If an error, an interrupt or a power failure ends the writing early, the old file stays.
"""

import errno
import os
import stat
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Self

_NAME_BYTES = 128  # of the file's own name in the name of the temporary file, of up to 255

_MOST_LINKS = 40  # the most links a path may lead through, as in the kernel

_unfinished: set[str] = set()  # temporary files of this process


def make_private(folder: Path) -> None:
    """Make a folder and its missing parents, all with mode 0700."""
    for path in reversed([folder, *folder.parents]):
        if not path.exists():
            path.mkdir(mode=0o700, exist_ok=True)


class WithCommit:
    """A context manager: committed at its end, discarded if an error ends it."""

    def commit(self) -> None:
        """Put the result in place."""
        raise NotImplementedError

    def discard(self) -> None:
        """Drop the result; what was there before stays."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.commit()
        else:
            self.discard()


class NewFile(WithCommit):
    """A new file for ``path``, open for writing and reading as ``file``.

    Until ``commit`` it is a hidden file ``.NAME.*.part`` in the same folder; then it replaces the
    old file and takes its permissions. ``discard``, the garbage collector or interpreter exit
    removes it. A link stays, and its target is replaced. Anything but a regular file (``in_place``)
    is written directly, and cannot be read.

    Raises OSError, with ``path`` as its file name, if the file cannot be created.
    """

    file: BinaryIO

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)
        self._place: str | None = None
        self._temporary = ""
        number = _descriptor(self._path)
        if number is not None:
            with naming(self._path):
                self.file = open(os.dup(number), "wb")
            return
        if in_place(self._path):
            self.file = open(self._path, "wb")
            return
        if self._path.endswith(os.sep):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), self._path)
        place = os.path.realpath(self._path)
        before = os.stat(place) if os.path.exists(place) else None
        if before is not None and not os.access(place, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), self._path)
        folder, name = os.path.split(place)
        start = os.fsdecode(os.fsencode(name)[:_NAME_BYTES])
        unique = f"{os.getpid()}-{os.urandom(4).hex()}"
        self._temporary = os.path.join(folder, f".{start}.{unique}.part")
        # registered first: an interrupt may come as soon as the file exists
        _unfinished.add(self._temporary)
        self._remove = weakref.finalize(self, _unlink, self._temporary)
        try:
            with naming(self._path):
                self.file = open(self._temporary, "x+b")
        except OSError:
            self._remove()
            raise
        if before is not None:
            # before anything is written: others may not be allowed to read it
            _like(before, self.file.fileno())
        self._place = place

    @property
    def replaces(self) -> bool:
        """Whether ``commit`` puts a regular file in place."""
        return self._place is not None

    def finish(self) -> None:
        """Sync the file to disk and close it, so that ``commit`` only renames it.

        Raises OSError if it cannot be written, and discards it.
        """
        if self.file.closed:
            return
        try:
            with naming(self._path):
                self.file.flush()
                if self._place is not None:
                    os.fsync(self.file.fileno())
                self.file.close()
        except BaseException:
            self.discard()
            raise

    def commit(self) -> None:
        """Put the complete file in place, synced to disk; raise OSError if it cannot be written."""
        self.finish()
        if self._place is None:
            return
        try:
            os.replace(self._temporary, self._place)
        except OSError as error:
            # a mount point, for example; keep the content, which may have taken hours
            self._forget()
            raise OSError(
                error.errno,
                f"{error.strerror}; what was written is in {self._temporary}",
                self._path,
            ) from error
        self._forget()
        _sync_folder(os.path.dirname(self._place))

    def discard(self) -> None:
        """Close the file and leave the old one unchanged."""
        with suppress(OSError):  # buffered data may not fit on the disk
            self.file.close()
        if self._place is not None:
            self._remove()

    def _forget(self) -> None:
        self._remove.detach()
        _unfinished.discard(self._temporary)


def in_place(path: str | os.PathLike[str]) -> bool:
    """Whether a file is written directly: a device, a pipe, a directory or an open descriptor."""
    if _descriptor(os.fspath(path)) is not None:
        return True
    try:
        return not stat.S_ISREG(os.stat(path).st_mode)
    except FileNotFoundError:
        return False


def remove_unfinished() -> None:
    """Remove all temporary files, before the process ends without clean-up."""
    for path in list(_unfinished):
        _unlink(path)


def check_new_file(path: str | os.PathLike[str]) -> None:
    """Raise OSError, with ``path`` as its file name, if no file can be created there now."""
    if not in_place(path):
        NewFile(path).discard()
    elif os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    elif not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), os.fspath(path))


def check_regular_file(path: str | os.PathLike[str]) -> None:
    """Like ``check_new_file``; a device or a pipe is refused, too."""
    check_new_file(path)
    if in_place(path):
        raise OSError(errno.EINVAL, "is no regular file: give another name", os.fspath(path))


@contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """A context manager that sets ``path`` as the file name of OSErrors."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise OSError(errno.EIO, str(error), os.fspath(path)) from error
        error.filename, error.filename2 = os.fspath(path), None
        raise


def _descriptor(path: str) -> int | None:
    """The N of /dev/fd/N, /dev/stdout and links to them, which name open descriptors."""
    for _ in range(_MOST_LINKS):
        folder, name = os.path.split(path)
        if name.isdecimal() and os.path.realpath(folder) == f"/proc/{os.getpid()}/fd":
            return int(name)
        try:
            path = os.path.join(folder, os.readlink(path))
        except OSError:
            return None
    return None


def _like(before: os.stat_result, file: int) -> None:
    """Give an open file the owner, group and permissions of another one, where allowed."""
    with suppress(OSError):
        os.fchown(file, before.st_uid, -1)
    with suppress(OSError):
        os.fchown(file, -1, before.st_gid)
    with suppress(OSError):
        os.fchmod(file, stat.S_IMODE(before.st_mode))


def _unlink(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)
    _unfinished.discard(path)


def _sync_folder(folder: str) -> None:
    """Make a rename durable: POSIX requires a sync of the directory."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        # not every file system supports it
        with suppress(OSError):
            os.fsync(handle)
    finally:
        os.close(handle)
