"""Open a directory's index: exclusive, ours, private, and with the expected identity."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from streamer.journal.checks import Checked
from streamer.journal.data_files import data_file, data_file_numbers
from streamer.journal.data_log import DataLog
from streamer.journal.disk import Disk, storing, syncing
from streamer.journal.index_tables import State
from streamer.journal.journal_errors import (
    JournalDamage,
    JournalError,
    JournalFull,
    JournalInUse,
)
from streamer.journal.record_index import NAME, Index
from streamer.journal.sizes import Sizes
from streamer.journal.stored_snapshots import snapshot_file, snapshot_numbers

_LEAVE = "use an empty directory"
_MACHINE = Path("/etc/machine-id")


class Lock:
    """Exclusive ownership of the directory itself, until closed or killed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self.close()
            message = (
                f"{directory}: in use by another process: stop that one, or use another directory"
            )
            raise JournalInUse(message) from error

    def check(self) -> None:
        """Raise JournalFull unless the path still leads to the directory, and it can be written."""
        here = os.fstat(self._fd)
        try:
            there = self._directory.stat()
        except OSError:
            there = None
        if there is None or not os.path.samestat(here, there):
            problem = "was deleted, renamed or replaced: move it back, or start again"
        elif here.st_mode & 0o300 != 0o300 or not os.access(self._directory, os.W_OK | os.X_OK):
            problem = "cannot be written any more: give the permission back"
        else:
            return
        message = f"{self._directory}: {problem}"
        raise JournalFull(message)

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
        # an interrupted start may have left the index alone
        if names and not _leftovers(directory) and not all(map(_is_of_index, names)):
            message = f"{directory}: holds other files: {_LEAVE}"
            raise JournalError(message)
        if directory.stat().st_mode & 0o077:
            directory.chmod(0o700)
        return Lock(directory)
    except OSError as error:
        message = f"{directory}: cannot hold a journal: {error.strerror}: use another directory"
        raise JournalError(message) from error


def home_of(directory: Path) -> bytes:
    """Return what tells a directory from its copies: file system, folder and machine."""
    machine = _MACHINE.read_bytes().strip() if _MACHINE.exists() else b""
    found = directory.stat().st_ino, os.statvfs(directory).f_fsid
    return b"%x %x %s" % (*found, machine)


def new_state(directory: Path, identity: bytes, *, synced: bool) -> State:
    """Return the state of an empty journal."""
    stream, seal = os.urandom(8), os.urandom(16)
    here = home_of(directory)
    return State(1, stream, here, seal, identity, 0, int(synced), 1, *[0] * 9)


def recover(
    disk: Disk, directory: Path, log: DataLog, *, sizes: Sizes
) -> tuple[Index, State | None, list[str]]:
    """Open the index, made anew if anything is wrong with it; also the last state, and notes.

    Without data files, there is nothing to make it from: JournalError or JournalDamage.
    """
    try:
        index, state = open_index(disk, directory, log, sizes=sizes)
        problem: JournalError | None = None
        if state is not None and log.numbers:
            problem = Checked(index, directory).index_damage()
        if problem is None:
            return index, state, [str(note) for note in [*log.notes, *log.incomplete]]
        index.close()
    except JournalError as error:
        # others say nothing about the content
        if not log.numbers or type(error) not in (JournalError, JournalDamage):
            raise
        problem = error
    log.notes.clear()
    log.incomplete.clear()
    index, state = make_index(disk, directory, log, sizes=sizes)
    notes = [f"{problem}: the index was made anew", *log.notes, *log.incomplete]
    return index, state, [str(note) for note in notes]


def open_index(
    disk: Disk, directory: Path, log: DataLog, *, sizes: Sizes
) -> tuple[Index, State | None]:
    """Open the index and bring it up to date with the data files.

    Returns the last state, None for a new journal. Raises JournalDamage if the index is of no use.
    """
    path = directory / NAME
    if log.numbers and not (path.exists() and (directory / f"{NAME}-wal").exists()):
        message = "the index or its log is missing"
        raise JournalDamage(message, file=str(path))
    if not path.exists():
        _new_index(disk, directory)
    index = Index(directory, vfs=disk.vfs, write=True, page_bytes=sizes.page_bytes)
    try:
        if index.empty():
            if log.numbers:
                message = "the index is empty"
                raise JournalDamage(message, file=str(path))
            index.prepare()
            index.create()
            return index, None
        index.prepare()
        state = index.state() if log.numbers or index.has_state() else None
        if state is not None:
            if log.seal not in (None, state.seal):
                message = "it is of other data files"
                raise JournalDamage(message, file=str(index.path))
            state = log.replay(index, state)
    except BaseException:
        index.close()
        raise
    return index, state


def make_index(
    disk: Disk, directory: Path, log: DataLog, *, sizes: Sizes
) -> tuple[Index, State | None]:
    """Make the index from the data files, and return their last state.

    None if the first start ended before it had stored anything. JournalDamage if nothing is whole.
    """
    _new_index(disk, directory)
    index = Index(directory, vfs=disk.vfs, write=True, page_bytes=sizes.page_bytes)
    try:
        index.prepare()
        index.create()
        state = log.replay(index)
        if state is None and (log.notes or snapshot_numbers(directory)):
            message = f"no records can be read: {_LEAVE}"
            raise JournalDamage(message, file=str(directory))
    except BaseException:
        index.close()
        raise
    return index, state


def _new_index(disk: Disk, directory: Path) -> None:
    for path in directory.glob(f"{NAME}*"):
        disk.delete(path)
    with storing(directory / NAME):
        os.close(disk.create(directory / NAME, 0))


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


def _is_of_index(name: str) -> bool:
    return name.startswith(NAME)


def _words(identity: bytes) -> list[str]:
    try:
        return identity.decode().split()
    except UnicodeDecodeError:
        return [identity.hex()]
