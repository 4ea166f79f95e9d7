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
    """What a header says: its first record, how many there are, and the bytes behind it."""

    first: int
    records: int
    bytes: int


def data_file(directory: Path, number: int) -> Path:
    """The path of a data file, numbered from 1."""
    return directory / f"{_PREFIX}{number:08d}"


def data_file_numbers(directory: Path) -> list[int]:
    """Numbers of the data files there are, ascending."""
    return file_numbers(directory, _PREFIX)


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
                raise unread(path, error, offset=row.offset, record=row.at) from error
        if len(data) != row.size or crc32c([data]) != row.sum:
            message = "wrong checksum"
            raise JournalDamage(message, file=str(path), offset=row.offset, record=row.at)
        return split(data, row.lengths)

    def group(self, seal: bytes, file: int, offset: int) -> GroupHeader | None:
        """What the header there says; None if there is none. JournalUnread."""
        try:
            return unpack_header(seal, self.read(file, offset, HEADER_BYTES))
        except OSError as error:
            why = unread(data_file(self._directory, file), error, offset=offset)
            if isinstance(why, JournalUnread):
                raise why from error
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
