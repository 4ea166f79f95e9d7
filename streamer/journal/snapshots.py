"""Snapshots: each is a file of its own that is complete before the index names it."""

from __future__ import annotations

import os
from pathlib import Path

from streamer.journal.data_files import split
from streamer.journal.disk import Disk, storing, syncing
from streamer.journal.errors import JournalDamage, JournalFull
from streamer.journal.record import Snapshot
from streamer.journal.schema import SnapshotRow, pack_lengths
from streamer.protocol.checksums import crc32c

_PREFIX = "snapshot-"


def snapshot_file(directory: Path, number: int) -> Path:
    """The path of a snapshot, numbered from 1."""
    return directory / f"{_PREFIX}{number:08d}"


def snapshot_numbers(directory: Path) -> list[int]:
    """Numbers of the snapshots there are, ascending."""
    names = (path.name.removeprefix(_PREFIX) for path in directory.glob(f"{_PREFIX}*"))
    return sorted(int(name) for name in names if name.isdigit())


def write_snapshot(
    disk: Disk, directory: Path, number: int, snapshot: Snapshot, *, synced: bool
) -> SnapshotRow:
    """Store the file of a snapshot; the row that names it. JournalFull leaves no file."""
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
    """The snapshot that a row names; JournalDamage if it is not what was stored."""
    path = snapshot_file(directory, row.file)
    try:
        data = path.read_bytes()
    except OSError as error:
        message = f"snapshot cannot be read: {os.strerror(error.errno or 0)}"
        raise JournalDamage(message, file=str(path)) from error
    frames = split(data, row.lengths)
    if sum(map(len, frames)) != len(data) or crc32c([data]) != row.sum:
        message = "snapshot: wrong checksum"
        raise JournalDamage(message, file=str(path), offset=0)
    return Snapshot(row.at, row.meta, frames)
