"""Retention: expired records' rows are deleted first, then files that no row names."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from streamer.journal.data_files import data_file, data_file_numbers
from streamer.journal.disk import Disk
from streamer.journal.index_tables import SnapshotRow, State
from streamer.journal.journal_errors import JournalDamage
from streamer.journal.record_index import Index
from streamer.journal.stored_snapshots import snapshot_file, snapshot_numbers

_HOUR = 3600 * 10**9
_AT_ONCE = 1024  # records per call; appends wait for it


class Limits(NamedTuple):
    """Limits on the retention of records that recovery does not need; 0: no limit."""

    bytes: int
    hours: float

    def expired(self, index: Index, state: State, snapshot: SnapshotRow | None, now: int) -> State:
        """Return the state without the oldest records beyond the limits, or unchanged."""
        needed = min(state.oldest - 1 + _AT_ONCE, snapshot.at if snapshot and snapshot.file else 0)
        oldest, kept = state.oldest, state.bytes
        if needed < oldest or not (self.bytes or self.hours):
            return state
        for row in index.records(oldest - 1, needed):
            # nothing is known about it, so it expires with the oldest
            if isinstance(row, JournalDamage):
                oldest += 1
                continue
            too_old = self.hours and row.time < now - int(self.hours * _HOUR)
            if not too_old and not (self.bytes and kept > self.bytes):
                break
            oldest, kept = row.at + 1, max(0, kept - row.size - len(row.meta))
        return state._replace(oldest=oldest, bytes=kept)


def delete_data_files(disk: Disk, directory: Path, index: Index, state: State, last: int) -> bool:
    """Delete data files before those that rows name and ``last``; return whether there were any."""
    first = state.file
    for row in index.records(state.oldest - 1, state.head):
        if isinstance(row, JournalDamage):
            first = 0  # a damaged row may name any file
            break
        if row.file:
            first = row.file
            break
    gone = [number for number in data_file_numbers(directory) if number < min(first, last)]
    for number in gone:
        disk.delete(data_file(directory, number))
    return bool(gone)


def delete_snapshots(disk: Disk, directory: Path, kept: SnapshotRow | None) -> None:
    """Delete all snapshots but one."""
    for number in snapshot_numbers(directory):
        if kept is None or number != kept.file:
            disk.delete(snapshot_file(directory, number))
