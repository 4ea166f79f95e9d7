"""A stored file, read from its first byte even after its magic number was examined."""

from __future__ import annotations

import io
import os
import stat
from typing import Any, Protocol

LONGEST_MAGIC = 6
_READ_BYTES = 1 << 17


class Readable(Protocol):
    """The operations needed of a file."""

    def read1(self, size: int = ..., /) -> bytes:
        """Read at most ``size`` bytes; none at the end."""


class Packed(Readable, Protocol):
    """The operations needed of a compressed file."""

    def readinto(self, buffer: Any, /) -> int:
        """Read at most as many bytes as fit; 0 at the end."""


class RawFile:
    """A buffered binary file or pipe; ``magic`` holds its first bytes.

    Opening waits for them, because a pipe may deliver them one by one.
    """

    def __init__(self, file: Any) -> None:
        self._file = file
        self.bytes_read = 0
        self.magic = b""
        while len(self.magic) < LONGEST_MAGIC and (piece := file.read1(LONGEST_MAGIC)):
            self.magic += piece
        self._start = self.magic

    @property
    def regular(self) -> bool:
        """Whether it is not a pipe: waiting for more bytes delays none that are already there."""
        return bool(self._file.seekable())

    @property
    def extent(self) -> tuple[int, int, int] | None:
        """Return descriptor, offset and end of a regular file that is read from its beginning.

        Returns None for any other file, and once it has been read from.
        """
        try:
            if self.bytes_read or not self.regular:
                return None
            number = self._file.fileno()
            status = os.fstat(number)
            if not stat.S_ISREG(status.st_mode):
                return None
            return number, self._file.tell() - len(self.magic), status.st_size
        except (OSError, ValueError, AttributeError):  # a file in memory
            return None

    def go_to(self, place: int) -> None:
        """Continue reading at ``place``."""
        self._start = b""
        self._file.seek(place)

    def read1(self, size: int = _READ_BYTES, /) -> bytes:
        """Read at most ``size`` bytes; none at the end."""
        data: bytes = self._start[:size] or self._file.read1(size)
        self._start = self._start[size:]
        self.bytes_read += len(data)
        return data

    def readinto(self, buffer: Any, /) -> int:
        """Read at most as many bytes as fit; 0 at the end."""
        if self._start:
            data = self.read1(len(buffer))
            buffer[: len(data)] = data
            return len(data)
        count: int = self._file.readinto1(buffer)
        self.bytes_read += count
        return count


class Buffered(io.BufferedReader):
    """A file for callers that need more than ``Readable``."""

    def __init__(self, file: Readable) -> None:
        super().__init__(_Raw(file), _READ_BYTES)


class _Raw(io.RawIOBase):
    def __init__(self, file: Readable) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        data = self._file.read1(len(buffer))
        buffer[: len(data)] = data
        return len(data)
