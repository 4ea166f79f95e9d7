"""Snapshots: each is a separate file that is complete before the index names it."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from pathlib import Path

from streamer.journal.data_files import split
from streamer.journal.disk import Disk, file_numbers, storing, syncing, unread
from streamer.journal.record import JournalDamage, JournalFull, Snapshot
from streamer.journal.record_index import SnapshotRow, pack_lengths, unpack_lengths
from streamer.protocol.header import crc32c

_PREFIX = "snapshot-"
_UNREAD = "snapshot cannot be read"

PIECE_BYTES = 1 << 20
"""Bytes that ``SnapshotFile`` reads at a time."""


def snapshot_file(directory: Path, number: int) -> Path:
    """Return the path of a snapshot, numbered from 1."""
    return directory / f"{_PREFIX}{number:08d}"


def snapshot_numbers(directory: Path) -> list[int]:
    """Return the numbers of the existing snapshots, ascending."""
    return file_numbers(directory, _PREFIX)


def write_snapshot(
    disk: Disk, directory: Path, number: int, snapshot: Snapshot, *, synced: bool
) -> SnapshotRow:
    """Store the file of a snapshot and return the row that names it; JournalFull leaves no file."""
    path = snapshot_file(directory, number)
    with storing(path):
        fd = disk.create(path, sum(map(len, snapshot.frames)))
    try:
        with storing(path):
            disk.write(fd, 0, snapshot.frames)
        if synced:
            with syncing(path):
                disk.sync(fd)
                disk.sync_directory(directory)
    except JournalFull:
        disk.delete(path)
        raise
    finally:
        os.close(fd)
    lengths, content = pack_lengths(snapshot.frames), crc32c(snapshot.frames)
    return SnapshotRow(1, snapshot.at, number, lengths, content, snapshot.meta)


def read_snapshot(directory: Path, row: SnapshotRow) -> Snapshot:
    """Read the snapshot that a row names; raise JournalDamage if it has changed."""
    path = snapshot_file(directory, row.file)
    if not row.file:
        return Snapshot(row.at, row.meta, ())
    try:
        data = path.read_bytes()
    except OSError as error:
        raise unread(path, error, _UNREAD) from error
    frames = split(data, row.lengths)
    if sum(map(len, frames)) != len(data) or crc32c([data]) != row.sum:
        raise _wrong(path)
    return Snapshot(row.at, row.meta, frames)


class SnapshotFile:
    """The snapshot of a row, read piece by piece; it stays readable after being replaced.

    Raises JournalDamage if anything cannot be read or has changed.
    """

    def __init__(self, directory: Path, row: SnapshotRow) -> None:
        self.row = row
        self._path = snapshot_file(directory, row.file)
        try:
            self._fd = os.open(self._path, os.O_RDONLY)
            size = os.fstat(self._fd).st_size
        except OSError as error:
            raise unread(self._path, error, _UNREAD) from error
        # a reader that still uses the file keeps it open
        weakref.finalize(self, os.close, self._fd)
        if sum(unpack_lengths(row.lengths)) != size:
            raise _wrong(self._path)
        self._unchecked = self._places()
        self._sums: dict[int, int] = {}
        self._sum = 0

    def size(self, frame: int) -> int:
        """Return the size of a frame in bytes."""
        return unpack_lengths(self.row.lengths)[frame]

    def check(self, most: int) -> bool:
        """Verify about ``most`` more bytes against the checksum; return whether all are done."""
        for offset, size in self._unchecked:
            piece = self._read(offset, size)
            self._sums[offset] = crc32c([piece])
            self._sum = crc32c([piece], self._sum)
            most -= size
            if most <= 0:
                return False
        if self._sum != self.row.sum:
            raise _wrong(self._path)
        return True

    def pieces(self, frame: int) -> Iterator[bytes]:
        """Yield a frame of a verified snapshot in pieces of ``PIECE_BYTES``."""
        for offset, size in self._places(frame):
            piece = self._read(offset, size)
            if crc32c([piece]) != self._sums[offset]:
                raise _wrong(self._path, offset)
            yield piece

    def _places(self, only: int | None = None) -> Iterator[tuple[int, int]]:
        """Yield offset and size of the pieces of all frames, or of one."""
        begin = 0
        for number, length in enumerate(unpack_lengths(self.row.lengths)):
            if only in (None, number):
                for offset in range(begin, begin + length, PIECE_BYTES):
                    yield offset, min(PIECE_BYTES, begin + length - offset)
            begin += length

    def _read(self, offset: int, size: int) -> bytes:
        try:
            return os.pread(self._fd, size, offset)
        except OSError as error:
            raise unread(self._path, error, _UNREAD) from error


def _wrong(path: Path, offset: int = 0) -> JournalDamage:
    return JournalDamage("snapshot: wrong checksum", file=str(path), offset=offset)
