"""A file as it is stored, read from its first byte on although these have been looked at."""

from __future__ import annotations

import io
import os
import stat
from typing import Any, Protocol

LONGEST_MAGIC = 6
_READ_BYTES = 1 << 17


class Readable(Protocol):
    """What is needed of a file."""

    def read1(self, size: int = ..., /) -> bytes:
        """At most ``size`` bytes, none at the end."""


class Packed(Readable, Protocol):
    """What is needed of a compressed file."""

    def readinto(self, buffer: Any, /) -> int:
        """Read at most as many bytes as fit; 0 at the end."""


class RawFile:
    """A binary file or pipe that is buffered; ``magic`` are its first bytes.

    They are waited for: a pipe may deliver them one by one.
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
        """Whether it is no pipe: waiting for more bytes does not hold up those that are there."""
        return bool(self._file.seekable())

    @property
    def extent(self) -> tuple[int, int, int] | None:
        """The number of a regular file that is read from its beginning, where that is, and its end.

        None for another file, and once it has been read from.
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
        """Read on from there."""
        self._start = b""
        self._file.seek(place)

    def read1(self, size: int = _READ_BYTES, /) -> bytes:
        """At most ``size`` bytes, none at the end."""
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
    """A file for what needs more than ``Readable``."""

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
