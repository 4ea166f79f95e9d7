"""Data files: the frames of records, one after the other. What is where stands in the index.

A group of records begins at a page's start with a header::

    8 bytes magic | 16 seal | 8 first record | 4 records | 8 bytes that follow | 4 CRC-32C | 0 ...

The header says nothing that the index does not say. It proves that the index had been committed up
to the record before: no group is written earlier. So an index that was put back, or lost its log,
is found out. The seal is secret: no frame can be taken for a header.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from streamer.journal.disk import Disk, storing, syncing
from streamer.journal.journal_errors import JournalDamage, JournalFull
from streamer.journal.record import Frame
from streamer.journal.sizes import Sizes
from streamer.journal.tables import RecordRow, unpack_lengths
from streamer.protocol.checksums import crc32c

HEADER_BYTES = 64

_PREFIX = "records-"
_HEADER = struct.Struct("<8s16sQIQ")
_SUM = struct.Struct("<I")
_MAGIC = b"kmer-log"
_OPEN_FILES = 1


class GroupHeader(NamedTuple):
    """What a header says: its first record, how many there are, and the bytes behind it."""

    first: int
    records: int
    bytes: int


def data_file(directory: Path, number: int) -> Path:
    """The path of a data file, numbered from 1."""
    return directory / f"{_PREFIX}{number:08d}"


def data_file_numbers(directory: Path) -> list[int]:
    """Numbers of the data files there are, ascending."""
    names = (path.name.removeprefix(_PREFIX) for path in directory.glob(f"{_PREFIX}*"))
    return sorted(int(name) for name in names if name.isdigit())


def pack_header(seal: bytes, group: GroupHeader) -> bytes:
    """The header of a group."""
    fields = _HEADER.pack(_MAGIC, seal, *group)
    return (fields + _SUM.pack(crc32c([fields]))).ljust(HEADER_BYTES, b"\0")


def unpack_header(seal: bytes, data: bytes) -> GroupHeader | None:
    """What a header says; None if this is none."""
    if len(data) < HEADER_BYTES:
        return None
    fields, end = data[: _HEADER.size], _HEADER.size + _SUM.size
    if _SUM.unpack(data[_HEADER.size : end])[0] != crc32c([fields]):
        return None
    magic, found, *group = _HEADER.unpack(fields)
    return GroupHeader(*group) if magic == _MAGIC and found == seal else None


class DataWriter:
    """The end of the data: where the next group goes.

    A file that is not there any more is left behind for a new one. ``synced``: whether content and
    names are on the disk when ``write`` returns.
    """

    def __init__(self, disk: Disk, directory: Path, *, sizes: Sizes, synced: bool) -> None:
        self.file = self.end = 0
        self._disk = disk
        self._directory = directory
        self._sizes = sizes
        self._synced = synced
        self._fd: int | None = None
        self._room = 0

    def start(self, file: int, end: int) -> None:
        """Go on at this place."""
        self.file, self.end = file, end
        with suppress(FileNotFoundError):
            if file:
                self._fd = self._disk.open(data_file(self._directory, file))
                self._room = os.fstat(self._fd).st_size

    def write(
        self, seal: bytes, first: int, records: Sequence[Sequence[Frame]]
    ) -> tuple[int, int, int]:
        """Store the frames of a group: its file, the offset of the first frame and of the end.

        JournalFull or JournalFailed. The place is taken only by ``taken``; until then the next
        group goes there, too.
        """
        frames = [frame for record in records for frame in record]
        size = sum(map(len, frames))
        begin = self._sizes.page_after(self.end)
        if self._fd is None or begin + HEADER_BYTES + size > self._room:
            self._next_file(HEADER_BYTES + size)
            begin = 0
        assert self._fd is not None
        header = pack_header(seal, GroupHeader(first, len(records), size))
        path = data_file(self._directory, self.file)
        with storing(path):
            self._disk.write(self._fd, begin, [header, *frames])
        if self._synced:
            with syncing(path):
                self._disk.sync(self._fd)
        return self.file, begin + HEADER_BYTES, begin + HEADER_BYTES + size

    def taken(self, end: int) -> None:
        """What was written up to here has been committed."""
        self.end = end

    def close(self) -> None:
        """Close the file."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _next_file(self, size: int) -> None:
        """A new file, with its name on the disk; a smaller one where there is little room."""
        least, size = size, max(size, self._sizes.file_bytes)
        path = data_file(self._directory, self.file + 1)
        while True:
            try:
                with storing(path):
                    fd = self._disk.create(path, size)
                break
            except JournalFull:
                if size == least:
                    raise
                size = max(least, size // 2)
        if self._fd is not None:
            with suppress(OSError):  # what is set aside behind the end is of no more use
                self._disk.truncate(self._fd, self.end)
            os.close(self._fd)
        self.file, self.end, self._fd, self._room = self.file + 1, 0, fd, size
        if self._synced:
            with syncing(path):
                self._disk.sync_directory(self._directory)


class DataReader:
    """Reads frames and checks them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._open: dict[int, int] = {}

    def frames(self, row: RecordRow) -> tuple[memoryview, ...]:
        """The frames of a record; JournalDamage if they are not what was stored."""
        path = data_file(self._directory, row.file)
        if not row.size:
            data = b""
        else:
            try:
                data = self.read(row.file, row.offset, row.size)
            except OSError as error:
                message = f"cannot be read: {os.strerror(error.errno or 0)}"
                raise JournalDamage(
                    message, file=str(path), offset=row.offset, record=row.at
                ) from error
        if len(data) != row.size or crc32c([data]) != row.sum:
            message = "wrong checksum"
            raise JournalDamage(message, file=str(path), offset=row.offset, record=row.at)
        return split(data, row.lengths)

    def group(self, seal: bytes, file: int, offset: int) -> GroupHeader | None:
        """What the header there says; None if there is none."""
        with suppress(OSError):
            return unpack_header(seal, self.read(file, offset, HEADER_BYTES))
        return None

    def read(self, file: int, offset: int, size: int) -> bytes:
        """Up to ``size`` bytes of a file."""
        fd = self._open.get(file)
        if fd is None:
            if len(self._open) == _OPEN_FILES:
                os.close(self._open.pop(next(iter(self._open))))
            fd = self._open[file] = os.open(data_file(self._directory, file), os.O_RDONLY)
        parts = []
        while size:
            part = os.pread(fd, min(size, 1 << 30), offset)
            if not part:
                break
            parts.append(part)
            offset, size = offset + len(part), size - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def close(self) -> None:
        """Close all files."""
        while self._open:
            os.close(self._open.popitem()[1])


def split(data: bytes, lengths: bytes) -> tuple[memoryview, ...]:
    """Frames that were stored one after the other."""
    frames, begin = [], 0
    for length in unpack_lengths(lengths):
        frames.append(memoryview(data)[begin : begin + length])
        begin += length
    return tuple(frames)
