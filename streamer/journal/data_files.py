"""Data files: groups of frames, each with the rows that the index has of them.

A group begins at a page boundary::

    64 header: 8 magic | 16 seal | 8 serial | 4 sum of the group before | 8 bytes of frames |
               4 bytes of rows | 4 records | 4 CRC-32C of rows and sums | 4 CRC-32C of the header
    frames of its records, one after another
    rows (msgpack), in which places are relative to the group
    4 CRC-32C of the frames of each record

A group changes the index as one transaction, so the index can be made anew from the data files.
Serials count up, and the CRC-32C of each header is repeated in the next one, which shows gaps and
changes of order. No group is written before the one in front of it is committed. A group at the
beginning of a file has the rows of all producers and of the snapshot, so older files can be
deleted. The seal is secret, so no frame can pass for a header.

Internal sizes of a journal; tests make them small.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from streamer.journal.disk import file_numbers, unread
from streamer.journal.record import JournalDamage, JournalUnread
from streamer.journal.record_index import (
    ForgottenRow,
    RecordRow,
    Row,
    State,
    lost,
    unpack_lengths,
    unpack_rows,
)
from streamer.protocol.header import crc32c

HEADER_BYTES = 64

_PREFIX = "records-"
_HEADER = struct.Struct("<8s16sQIQIII")
_SUM = struct.Struct("<I")
_MAGIC, _MAGIC_BEFORE = b"kmer-lg3", b"kmer-log"
_OPEN_FILES = 1
_SEARCHED_BYTES = 1 << 20


class DataGroup(NamedTuple):
    """A group: its place, and what its header says. sum: of the header, and so of all but frames.

    before: the sum of the group in front of it. size, rows: bytes of frames and of rows.
    """

    file: int
    begin: int
    seal: bytes
    serial: int
    before: int
    size: int
    rows: int
    records: int
    rows_sum: int
    sum: int

    @property
    def frames(self) -> int:
        """The offset of the first frame."""
        return self.begin + HEADER_BYTES

    @property
    def end(self) -> int:
        """The offset behind the group."""
        return self.frames + self.size + self.rows + _SUM.size * self.records


def data_file(directory: Path, number: int) -> Path:
    """Return the path of a data file, numbered from 1."""
    return directory / f"{_PREFIX}{number:08d}"


def data_file_numbers(directory: Path) -> list[int]:
    """Return the numbers of the existing data files, ascending."""
    return file_numbers(directory, _PREFIX)


def pack_sums(sums: Sequence[int]) -> bytes:
    """Encode the checksums behind the rows of a group."""
    return struct.pack(f"<{len(sums)}I", *sums)


def pack_header(group: DataGroup) -> tuple[bytes, int]:
    """Encode the header of a group whose sum is unknown; return it and the sum."""
    fields = _HEADER.pack(_MAGIC, *group[2:-1])
    crc = crc32c([fields])
    return fields + _SUM.pack(crc), crc


def unpack_header(file: int, begin: int, data: bytes) -> DataGroup | None:
    """Decode the header at a place; None if the data is not one."""
    if len(data) < HEADER_BYTES:
        return None
    fields = data[: _HEADER.size]
    (crc,) = _SUM.unpack(data[_HEADER.size : _HEADER.size + _SUM.size])
    magic, *values = _HEADER.unpack(fields)
    if magic != _MAGIC or crc32c([fields]) != crc:
        return None
    return DataGroup._make((file, begin, *values, crc))


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
            raise JournalDamage("wrong checksum", file=str(path), offset=row.offset, record=row.at)
        return split(data, row.lengths)

    def group(self, file: int, offset: int) -> DataGroup | None:
        """Return the group at a place; None if there is no whole header. Raises JournalUnread."""
        try:
            return unpack_header(file, offset, self.read(file, offset, HEADER_BYTES))
        except OSError as error:
            why = unread(data_file(self._directory, file), error, offset=offset)
            if isinstance(why, JournalUnread):
                raise why from error
            return None

    def was_group(self, file: int, offset: int, seal: bytes | None) -> bool:
        """Whether part of a header is at a place."""
        try:
            data = self.read(file, offset, HEADER_BYTES)
        except OSError:
            return False
        return data.startswith(_MAGIC) or (seal is not None and data[8:24] == seal)

    def rows(self, group: DataGroup) -> list[Row | ForgottenRow] | None:
        """Return the rows of a group, with their places; None if they have changed."""
        offset = group.frames + group.size
        try:
            data = self.read(group.file, offset, group.end - offset)
        except OSError as error:
            raise unread(data_file(self._directory, group.file), error, offset=offset) from error
        if len(data) != group.end - offset or crc32c([data]) != group.rows_sum:
            return None
        sums = iter(struct.unpack(f"<{group.records}I", data[group.rows :]))
        return [placed(row, group, sums) for row in unpack_rows(data[: group.rows])]

    def is_of_before(self, file: int) -> bool:
        """Whether a file is of the format before this one."""
        try:
            return self.read(file, 0, len(_MAGIC)) == _MAGIC_BEFORE
        except OSError:
            return False

    def search(self, file: int, offset: int, page: int) -> int | None:
        """Return the first place at or after ``offset`` where a header may begin."""
        try:
            while True:
                # space that was never written is skipped
                offset = os.lseek(self._file(file), offset, os.SEEK_DATA) // page * page
                data = self.read(file, offset, _SEARCHED_BYTES)
                found = data.find(_MAGIC)
                while found >= 0:
                    if not found % page:
                        return offset + found
                    found = data.find(_MAGIC, found + 1)
                offset += _SEARCHED_BYTES
        except OSError as error:
            why = unread(data_file(self._directory, file), error, offset=offset)
            if isinstance(why, JournalUnread):
                raise why from error
            return None  # after the last data

    def _file(self, file: int) -> int:
        fd = self._open.get(file)
        if fd is None:
            if len(self._open) == _OPEN_FILES:
                os.close(self._open.pop(next(iter(self._open))))
            fd = self._open[file] = os.open(data_file(self._directory, file), os.O_RDONLY)
        return fd

    def read(self, file: int, offset: int, size: int) -> bytes:
        """Read up to ``size`` bytes of a file."""
        fd = self._file(file)
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


def placed(row: Row | ForgottenRow, group: DataGroup, sums: Iterator[int]) -> Row | ForgottenRow:
    """Return a row of a group with its place in the data files."""
    if isinstance(row, State):
        return row._replace(
            serial=group.serial, sum=group.sum, file=group.file, begin=group.begin, end=group.end
        )
    if isinstance(row, RecordRow) and lost(row) is None:
        return row._replace(file=group.file, offset=group.frames + row.offset, sum=next(sums))
    return row


def split(data: bytes, lengths: bytes) -> tuple[memoryview, ...]:
    """Split frames that were stored one after another."""
    frames, begin = [], 0
    for length in unpack_lengths(lengths):
        frames.append(memoryview(data)[begin : begin + length])
        begin += length
    return tuple(frames)


class Sizes(NamedTuple):
    """file_bytes: reserved per data file. page_bytes: of SQLite, and the alignment of groups.

    checkpoint_pages: SQLite's log is copied into the index whenever it has grown by this.
    """

    file_bytes: int = 256 << 20
    page_bytes: int = 4096
    checkpoint_pages: int = 4000

    def page_after(self, offset: int) -> int:
        """Return the first page boundary at or after an offset."""
        return -(-offset // self.page_bytes) * self.page_bytes

    @property
    def spare_bytes(self) -> int:
        """Bytes at the end of a data file for groups without records."""
        return max(4 * self.page_bytes, self.file_bytes >> 10)
