"""Open a directory's index: exclusive, ours, private, and with the expected identity."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from streamer.journal.data_files import data_file, data_file_numbers
from streamer.journal.disk import Disk, storing, syncing
from streamer.journal.index_tables import State
from streamer.journal.journal_errors import JournalDamage, JournalError, JournalInUse
from streamer.journal.record_index import NAME, Index
from streamer.journal.sizes import Sizes
from streamer.journal.stored_snapshots import snapshot_file, snapshot_numbers

_LOCK = "lock"


class Lock:
    """Exclusive ownership of the directory, until closed or killed."""

    def __init__(self, directory: Path) -> None:
        self._fd = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self.close()
            message = (
                f"{directory}: in use by another process: stop that one, or use another directory"
            )
            raise JournalInUse(message) from error

    def close(self) -> None:
        """Release the directory."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def own(disk: Disk, directory: Path) -> Lock:
    """Create the directory if needed, and lock it; raise JournalError if it has other content."""
    try:
        disk.make_directory(directory)
        names = [path.name for path in directory.iterdir()]
        # an interrupted start may have left auxiliary files without the index
        ours = [name for name in names if name == _LOCK or name.startswith(NAME)]
        if len(ours) < len(names) and NAME not in names and not _leftovers(directory):
            message = f"{directory}: holds other files: use an empty directory"
            raise JournalError(message)
        if directory.stat().st_mode & 0o077:
            directory.chmod(0o700)
        return Lock(directory)
    except OSError as error:
        message = f"{directory}: cannot hold a journal: {error.strerror}: use another directory"
        raise JournalError(message) from error


def open_index(
    disk: Disk, directory: Path, identity: bytes, *, sizes: Sizes, synced: bool
) -> Index:
    """Open the index with this identity; create it if needed."""
    path = directory / NAME
    made = not path.exists()
    if made:
        if _leftovers(directory):
            message = "there are records, but no index of them"
            raise JournalDamage(message, file=str(path))
        with storing(path):
            os.close(disk.create(path, 0))
    index = Index(directory, vfs=disk.vfs, write=True, page_bytes=sizes.page_bytes)
    try:
        fresh = index.empty()
        if fresh and _leftovers(directory):
            message = "there are records, but the index is empty"
            raise JournalDamage(message, file=str(path))
        index.prepare(synchronous="FULL" if synced else "NORMAL")
        if fresh:
            seal = os.urandom(16)
            state = State(1, os.urandom(8), seal, identity, 0, int(synced), 1, 0, 0, 0, 0, 0, 0)
            index.create(state)
            with syncing(directory):
                disk.sync_directory(directory)
                disk.sync_directory(directory.parent)
        check_identity(directory, index.state().identity, identity)
    except BaseException:
        index.close()
        raise
    return index


def check_identity(directory: Path, stored: bytes, asked: bytes) -> None:
    """Raise JournalError that names the difference, if there is one."""
    if stored == asked:
        return
    there, here = _words(stored), _words(asked)
    was = " ".join(word for word in there if word not in here) or " ".join(there)
    now = " ".join(word for word in here if word not in there) or " ".join(here)
    message = (
        f"{directory}: its records are of `{was}`, this is `{now}`: "
        "use another directory, or the configuration of these records"
    )
    raise JournalError(message)


def sync_all(disk: Disk, directory: Path) -> None:
    """Sync everything that an owner has written without syncs."""
    paths = [data_file(directory, number) for number in data_file_numbers(directory)]
    paths += [snapshot_file(directory, number) for number in snapshot_numbers(directory)]
    for path in paths:
        with syncing(path):
            fd = disk.open(path)
            try:
                disk.sync(fd)
            finally:
                os.close(fd)
    with syncing(directory):
        disk.sync_directory(directory)


def _leftovers(directory: Path) -> bool:
    return bool(data_file_numbers(directory) or snapshot_numbers(directory))


def _words(identity: bytes) -> list[str]:
    try:
        return identity.decode().split()
    except UnicodeDecodeError:
        return [identity.hex()]
