"""A stored file, read from its first byte even after its magic number was examined.

Blocks of text of an uncompressed file, read in turn or by several threads in parallel.
"""

from __future__ import annotations

import io
import mmap
import os
import stat
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np

from streamer.sequences.text_window import BEHIND_BYTES, ROOM_BYTES, TextBlock, new_block
from trie.cpu.team import Team

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


_LEAST_THREADS = 3
"""The smallest team that reads in parallel: one copying thread keeps up with two that parse."""

_AHEAD = 4


class FileRegion(NamedTuple):
    """A byte range of a regular file, ``first`` to ``stop``, not yet read."""

    descriptor: int
    first: int
    stop: int

    def read(self) -> tuple[TextBlock, OSError | None]:
        """Read the bytes, fewer if the file ends early or a read fails; return the error too."""
        size = self.stop - self.first
        block = new_block(size)
        stop = block.first
        try:
            while stop < block.stop and (
                count := os.preadv(
                    self.descriptor,
                    [block.array.data[stop : block.stop]],
                    self.stop - block.stop + stop,
                )
            ):
                stop += count
        except OSError as error:
            return block._replace(stop=stop), error
        return block._replace(stop=stop), None

    def mapped(self) -> TextBlock | None:
        """Return the bytes without copying them; None near the ends of the file.

        Using them ends the process (SIGBUS) if they cannot be read, or the file becomes shorter.
        """
        begin = (self.first - ROOM_BYTES) // mmap.PAGESIZE * mmap.PAGESIZE
        if begin < 0 or self.stop + BEHIND_BYTES > os.fstat(self.descriptor).st_size:
            return None
        try:
            # writable, as kernels expect it; nothing is written to the file
            memory = mmap.mmap(
                self.descriptor, self.stop + BEHIND_BYTES - begin, mmap.MAP_PRIVATE, offset=begin
            )
            memory.madvise(mmap.MADV_WILLNEED)
        except (OSError, ValueError):  # ValueError: the file has just become shorter
            return None
        array = np.frombuffer(memory, np.uint8)
        return TextBlock(array, self.first - begin, self.stop - begin)


def plain_blocks(raw: RawFile, size: int, team: Team | None) -> Iterator[TextBlock]:
    """Yield blocks of at most ``size`` bytes; a team's threads read those of a regular file."""
    if team is not None and team.threads >= _LEAST_THREADS and (extent := raw.extent):
        descriptor, first, stop = extent

        def read(at: int) -> tuple[TextBlock, OSError | None]:
            return FileRegion(descriptor, at, min(at + size, stop)).read()

        ahead = _AHEAD + team.threads // 2
        line = team.line(range(first, stop, size), read, ahead, pulls="read", works="read")
        try:
            for block, error in line:
                count = block.stop - block.first
                raw.bytes_read += count
                first += count
                if count:
                    yield block
                if error is not None:
                    raise error
                if count < size:  # the last one, or the file has been truncated meanwhile
                    break
        finally:
            line.close()
        raw.go_to(first)
    while True:
        block = new_block(size)
        count = raw.readinto(block.array.data[block.first : block.stop])
        if not count:
            return
        yield block._replace(stop=block.first + count)
