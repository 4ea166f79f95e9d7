"""A file as stored, its blocks and regions, and the window of text that a parser sees.

``RawFile`` is read from its first byte on, after its magic number was examined. ``FileRegion`` is a
part of a plain file that a thread reads by itself. ``Text`` adds decompressed blocks to a window:

    array   ...... done | AT  not parsed yet  STOP | bytes after the end, which may be read

What is left of a block moves in front of the next one, into room that blocks reserve there. A
record longer than this room is collected in a separate array, whose size doubles. A large block is
added in portions, so that parsers reserve little memory for it.
"""

import io
import mmap
import os
import stat
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from trie.cpu import array_pool
from trie.cpu.vectors import SLACK

BLOCK_BYTES = 1 << 19
ROOM_BYTES = 1 << 18  # reserved in front of a block
BEHIND_BYTES = 2 * SLACK  # readable behind it
REGION_BYTES = (1 << 23) - ROOM_BYTES - BEHIND_BYTES  # of a block parsed in parallel with others

AT, STOP, LINE, WITHIN, SEEN, SEEN_LINES, PLUS = range(7)
"""Indices into ``Text.place``; see there."""

_LF: Final = 10


class FormatError(ValueError):
    """A file or a record that violates its format. name: of the record, if it can be read."""

    def __init__(self, problem: str, name: str | None = None) -> None:
        self.name = name
        super().__init__(problem)


class TextBlock(NamedTuple):
    """A piece of text, array[first:stop], with room before it and readable bytes after it."""

    array: NDArray[np.uint8]
    first: int
    stop: int


def new_block(size: int) -> TextBlock:
    """Allocate a block for ``size`` bytes, uninitialized."""
    array = array_pool.empty(ROOM_BYTES + size + BEHIND_BYTES, np.uint8)
    return TextBlock(array, ROOM_BYTES, ROOM_BYTES + size)


class Text:
    """The text in ``blocks`` that is not parsed yet.

    array: uint8. place: int64[7]; array[place[AT]:place[STOP]] has not been parsed. LINE: the
    number of the line that begins at AT, from 1. The other elements belong to the parsers. ended:
    nothing follows. blocks: what follows otherwise.
    """

    def __init__(self, blocks: Iterator[TextBlock]) -> None:
        self.blocks = blocks
        self.array: NDArray[np.uint8] = np.zeros(0, dtype=np.uint8)
        self.place = np.zeros(7, dtype=np.int64)
        self.place[LINE] = 1
        self.ended = False
        self._hidden = 0  # bytes after STOP that have not been added yet

    def __len__(self) -> int:
        return int(self.place[STOP] - self.place[AT])

    def start(self, size: int | None = None) -> bytes:
        """Return the next bytes, at most ``size``, without parsing them."""
        first, stop = self.place[AT], self.place[STOP]
        return self.array[first : stop if size is None else min(stop, first + size)].tobytes()

    def show(self, size: int | None = None) -> None:
        """Add up to ``size`` bytes of the last block, or all that is left of it if None."""
        shown = self._hidden if size is None else min(size, self._hidden)
        self.place[STOP] += shown
        self._hidden -= shown

    def more(self) -> None:
        """Add the next block, or a part; an error in reading it leaves the text unchanged."""
        if self._hidden:
            self.show(BLOCK_BYTES)
            return
        block = next(self.blocks, None)
        if block is None:
            self.ended = True
            return
        if block.stop == block.first:
            return
        kept, size = len(self), block.stop - block.first
        at, stop = int(self.place[AT]), int(self.place[STOP])
        if kept <= block.first:
            array, at = block.array, block.first - kept
            array[at : block.first] = self.array[stop - kept : stop]
            stop = block.stop
        else:
            if self.array.size - stop < size + BEHIND_BYTES:
                array = np.empty(2 * (kept + size) + BEHIND_BYTES, dtype=np.uint8)
                array[:kept] = self.array[at:stop]
                at, stop = 0, kept
            else:
                array = self.array
            array[stop : stop + size] = block.array[block.first : block.stop]
            stop += size
        self.array = array
        self._hidden = size
        self.place[AT], self.place[STOP] = at, stop - size
        self.show(BLOCK_BYTES)

    def end_line(self) -> None:
        """Terminate the last line of the file if it lacks a line end."""
        stop = self.place[STOP]
        if len(self) and self.array[stop - 1] != _LF:
            self.array[stop] = _LF
            self.place[STOP] += 1


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


class RawFile(io.RawIOBase):
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
        """Whether the file is not a pipe: waiting for more bytes delays none that are there."""
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

    def readable(self) -> bool:
        """Implement ``RawIOBase``, for readers that need more of a file."""
        return True

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


def plain_blocks(raw: RawFile, size: int) -> Iterator[TextBlock]:
    """Yield blocks of at most ``size`` bytes."""
    while True:
        block = new_block(size)
        count = raw.readinto(block.array.data[block.first : block.stop])
        if not count:
            return
        yield block._replace(stop=block.first + count)
