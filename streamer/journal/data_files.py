"""Data files: the frames of records, one after another; the index says what is where.

A group of records begins at a page boundary with a header::

    8 bytes magic | 16 seal | 8 first record | 4 records | 8 bytes that follow | 4 CRC-32C | 0 ...

The header repeats what the index says. It proves that the index had been committed up to the
previous record, because no group is written earlier. So an index that was restored from a copy, or
lost its log, is detected. The seal is secret, so no frame can pass for a header.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import NamedTuple

from streamer.journal.disk import file_numbers, unread
from streamer.journal.index_tables import RecordRow, unpack_lengths
from streamer.journal.journal_errors import JournalDamage, JournalUnread
from streamer.protocol.checksums import crc32c

HEADER_BYTES = 64

_PREFIX = "records-"
_HEADER = struct.Struct("<8s16sQIQ")
_SUM = struct.Struct("<I")
_MAGIC = b"kmer-log"
_OPEN_FILES = 1


class GroupHeader(NamedTuple):
    """The content of a header: first record, number of records, and the bytes that follow."""

    first: int
    records: int
    bytes: int


def data_file(directory: Path, number: int) -> Path:
    """Return the path of a data file, numbered from 1."""
    return directory / f"{_PREFIX}{number:08d}"


def data_file_numbers(directory: Path) -> list[int]:
    """Return the numbers of the existing data files, ascending."""
    return file_numbers(directory, _PREFIX)


def pack_header(seal: bytes, group: GroupHeader) -> bytes:
    """Encode the header of a group."""
    fields = _HEADER.pack(_MAGIC, seal, *group)
    return (fields + _SUM.pack(crc32c([fields]))).ljust(HEADER_BYTES, b"\0")


def unpack_header(seal: bytes, data: bytes) -> GroupHeader | None:
    """Decode a header; None if the data is not one."""
    if len(data) < HEADER_BYTES:
        return None
    fields, end = data[: _HEADER.size], _HEADER.size + _SUM.size
    if _SUM.unpack(data[_HEADER.size : end])[0] != crc32c([fields]):
        return None
    magic, found, *group = _HEADER.unpack(fields)
    return GroupHeader(*group) if magic == _MAGIC and found == seal else None


class DataReader:
    """Reads and verifies frames."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._open: dict[int, int] = {}

    def frames(self, row: RecordRow) -> tuple[memoryview, ...]:
        """Return the frames of a record; raise JournalDamage if they have changed."""
        path = data_file(self._directory, row.file)
        if not row.size:
            data = b""
        else:
            try:
                data = self.read(row.file, row.offset, row.size)
            except OSError as error:
                raise unread(path, error, offset=row.offset, record=row.at) from error
        if len(data) != row.size or crc32c([data]) != row.sum:
            message = "wrong checksum"
            raise JournalDamage(message, file=str(path), offset=row.offset, record=row.at)
        return split(data, row.lengths)

    def group(self, seal: bytes, file: int, offset: int) -> GroupHeader | None:
        """Return the header at a place; None if there is none. Raises JournalUnread."""
        try:
            return unpack_header(seal, self.read(file, offset, HEADER_BYTES))
        except OSError as error:
            why = unread(data_file(self._directory, file), error, offset=offset)
            if isinstance(why, JournalUnread):
                raise why from error
            return None

    def read(self, file: int, offset: int, size: int) -> bytes:
        """Read up to ``size`` bytes of a file."""
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
    """Split frames that were stored one after another."""
    frames, begin = [], 0
    for length in unpack_lengths(lengths):
        frames.append(memoryview(data)[begin : begin + length])
        begin += length
    return tuple(frames)
