"""A full disk changes nothing and goes away; a disk that fails is not asked again."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
from contextlib import suppress

import apsw
import pytest

from streamer.journal.disk import Disk
from streamer.journal.record import JournalFailed, JournalFull, JournalUnread, Record
from tests.streamer.journal.kit import SMALL, assert_holds, keyed, open_small, verify
from tests.waiting import descriptors_left


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 1 MB."""
    path = tmp_path / "disk"
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", path], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("this machine mounts nothing for this user")
    yield path
    subprocess.run(["umount", "--lazy", path], check=True)


def fill(path, *, spare: int = 0) -> None:
    """Leave so many bytes on a disk."""
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4096)):
            pass
    os.truncate(path, path.stat().st_size - spare)


def snapshot_files(directory) -> list[str]:
    return [path.name for path in directory.glob("snapshot-*")]


@pytest.mark.parametrize("spare", range(0, 140_000, 8192))
def test_full_disk_at_any_page(small_disk, spare):
    """Whether data, index or both do not fit: nothing of it is in, and later all of it is."""
    journal = open_small(small_disk / "j")
    stored = [keyed(1, b"x" * 60_000)]
    journal.append(stored)
    groups = [[Record(at, "batch", bytes(20_000), (b"y" * 900,), None, 0)] for at in (2, 3)]
    fill(small_disk / "filler", spare=spare)
    full = 0
    for group in groups:
        with suppress(JournalFull):
            journal.append(group)
            stored += group
        assert_holds(journal, stored)
        if group[0] in stored:
            continue
        full += 1
        with pytest.raises(JournalFull, match="no room on the disk"):  # still
            journal.append(group)
        assert_holds(journal, stored)
        (small_disk / "filler").unlink()
        journal.append(group)
        stored += group
        assert_holds(journal, stored)
    assert full == (spare < 110_592), spare
    assert verify(journal) == []
    journal.close()
    journal = open_small(small_disk / "j")
    assert_holds(journal, stored)
    journal.close()


def test_full_disk_from_too_many_records(small_disk):
    """It fills the disk by itself; retention makes room although the disk is full."""
    journal = open_small(small_disk, keep_bytes=100_000)
    stored = [keyed(1)]
    journal.append(stored)
    with suppress(JournalFull):
        while True:
            one = keyed(len(stored) + 1, b"x" * 30_000)
            journal.append([one])
            stored.append(one)
    assert len(stored) > 20
    assert_holds(journal, stored)
    journal.put_snapshot(len(stored), b"", ())
    while journal.expire(0):
        pass
    for _ in range(3):
        one = keyed(len(stored) + 1, b"y" * 30_000)
        journal.append([one])
        stored.append(one)
    assert_holds(journal, stored, journal.oldest)
    journal.close()


def test_full_disk_for_a_snapshot(small_disk):
    """The one before stays, and no file of the other."""
    journal = open_small(small_disk)
    journal.append([keyed(1, b"x")])
    journal.put_snapshot(0, b"first", (b"s",))
    for size in (1 << 20, 2 << 20):
        with pytest.raises(JournalFull):
            journal.put_snapshot(1, b"second", (bytes(size),))
        assert snapshot_files(small_disk) == ["snapshot-00000001"]
    snapshot = journal.snapshot()
    assert snapshot is not None
    assert snapshot.meta == b"first"
    journal.put_snapshot(1, b"second", (bytes(300_000),))
    assert verify(journal) == []
    journal.close()


def test_full_disk_at_start(small_disk):
    """It says so, changes nothing, and starts once there is room."""
    directory = small_disk / "j"
    fill(small_disk / "filler", spare=4096)
    with pytest.raises(JournalFull, match="no room on the disk"):
        open_small(directory)
    (small_disk / "filler").unlink()
    journal = open_small(directory)
    assert journal.epoch == 1
    journal.append([keyed(1, b"x")])
    journal.close()


def test_full_by_a_limit_of_file_size(tmp_path):
    """The system's limit of a process is no failing disk: it can be raised."""
    journal = open_small(tmp_path)
    stored = [keyed(1, b"x")]
    journal.append(stored)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    for limit in (1000, SMALL.file_bytes // 2):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
        try:
            one = keyed(len(stored) + 1, b"y" * SMALL.file_bytes)
            with pytest.raises(JournalFull):
                journal.append([one])
            if limit == 1000:  # here the index cannot grow either
                with pytest.raises(JournalFull):
                    journal.append([keyed(len(stored) + 1)])
                with pytest.raises(JournalFull):
                    journal._index.put(journal._everything())
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        journal.append([one])
        stored.append(one)
        assert_holds(journal, stored)


@pytest.mark.parametrize(("left", "durability"), [(0, "os"), (0, "fsync"), (1, "fsync")])
def test_no_descriptor_is_left(tmp_path, left, durability):
    """For a file, or for the directory to sync its name: nothing is stored, as on a full disk."""
    journal = open_small(tmp_path, durability=durability)
    stored = [keyed(1, b"x")]
    journal.append(stored)
    for at in (2, 3):
        one = keyed(at, b"y" * SMALL.file_bytes)
        with descriptors_left(left):
            for _ in range(2):
                with pytest.raises(JournalFull, match=r"records-.*: Too many open files: end some"):
                    journal.append([one])
        assert_holds(journal, stored)
        stored.append(one)
        journal.append([one])
    assert_holds(journal, stored)
    none_left = pytest.raises((JournalFull, JournalUnread), match="Too many open files")
    with descriptors_left(left), none_left:
        journal.put_snapshot(1, b"second", (b"z",))
    assert snapshot_files(tmp_path) == []
    journal.put_snapshot(1, b"second", (b"z",))
    assert verify(journal) == []
    journal.close()
    assert len(list(tmp_path.glob("records-*"))) == 3


@pytest.mark.parametrize("part", [1, 63, 64, 100, 511])
def test_short_writes_are_completed(tmp_path, monkeypatch, part):
    """A write that takes less than it was given says nothing."""
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: real(fd, data[:part], offset))
    journal = open_small(tmp_path)
    stored = [keyed(1, b"abc" * 300, b"", b"de" * 200), keyed(2, b"f" * 1100)]
    journal.append(stored)
    assert_holds(journal, stored)


def test_write_that_takes_nothing_is_a_full_disk(tmp_path, monkeypatch):
    journal = open_small(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", lambda *_: 0)
        with pytest.raises(JournalFull):
            journal.append([keyed(1, b"x")])
    journal.append([keyed(1, b"x")])
    assert_holds(journal, [keyed(1, b"x")])


class FailingDisk(Disk):
    """Once told, an operation fails with an error of the system."""

    def __init__(self) -> None:
        self.fails: str | None = None
        self.number = errno.EIO

    def _maybe(self, what: str) -> None:
        if self.fails == what:
            self.fails = None
            raise OSError(self.number, os.strerror(self.number))

    def create(self, path, size):
        self._maybe("create")
        return super().create(path, size)

    def write(self, fd, offset, data):
        self._maybe("write")
        super().write(fd, offset, data)

    def sync(self, fd):
        self._maybe("sync")
        super().sync(fd)

    def sync_directory(self, directory):
        self._maybe("sync_directory")
        super().sync_directory(directory)


@pytest.mark.parametrize(
    ("what", "number"),
    [
        ("create", errno.EIO),
        ("write", errno.EIO),
        ("sync", errno.EIO),
        ("sync", errno.ENOSPC),  # what was to be written is gone: no full disk to wait for
        ("sync", errno.EDQUOT),
        ("sync_directory", errno.EIO),
    ],
)
@pytest.mark.parametrize("storing", ["append", "snapshot"])
def test_failed_disk_is_not_asked_again(tmp_path, what, number, storing):
    """Nothing works until it is opened again, and then all that was acknowledged is there."""
    disk = FailingDisk()
    journal = open_small(tmp_path, disk=disk)
    stored = [keyed(1, b"x" * 60_000)]
    journal.append(stored)
    disk.fails, disk.number = what, number
    one = keyed(2, b"y" * 10_000)  # in a new file
    with pytest.raises(JournalFailed, match=os.strerror(number)):
        journal.append([one]) if storing == "append" else journal.put_snapshot(1, b"", (b"s",))
    for again in (
        lambda: journal.append([one]),
        lambda: journal.put_snapshot(1, b"", ()),
        lambda: journal.expire(0),
    ):
        with pytest.raises(JournalFailed):
            again()
    assert list(journal.records(0)) == stored
    journal.close()
    journal = open_small(tmp_path)
    # of what was written and not synced, nothing was acknowledged; it may be kept
    if (storing, what) == ("append", "sync"):
        stored.append(one)
    assert_holds(journal, stored)
    one = keyed(len(stored) + 1, b"z")
    journal.append([one])
    assert_holds(journal, [*stored, one])


class FailingFiles(apsw.VFS):
    """SQLite's files, of which some cannot be synced."""

    def __init__(self) -> None:
        super().__init__("failing", "")
        self.fails = ""

    def xOpen(self, name, flags):
        return _FailingFile(self, name, flags)


class _FailingFile(apsw.VFSFile):
    def __init__(self, files, name, flags) -> None:
        super().__init__("", name, flags)
        self._files = files
        self._name = str(getattr(name, "filename", lambda: name)())

    def xSync(self, flags):
        if self._files.fails and self._name.endswith(self._files.fails):
            error = apsw.IOError("disk I/O error")
            error.extendedresult = apsw.SQLITE_IOERR_FSYNC
            raise error
        super().xSync(flags)


def test_failed_sync_of_the_index(tmp_path):
    """That of a checkpoint, which SQLite itself would not report. Nothing depends on the index."""
    files = FailingFiles()
    disk = Disk()
    disk.vfs = "failing"
    journal = open_small(tmp_path, disk=disk)
    stored = [keyed(1, b"x")]
    journal.append(stored)
    files.fails = ".sqlite"
    with suppress(JournalFailed):
        for _ in range(50):
            one = keyed(len(stored) + 1, b"x")
            journal.append([one])
            stored.append(one)
            journal.checkpoint()
    files.fails = ""
    assert 1 < len(stored) < 50
    with pytest.raises(JournalFailed):
        journal.append([keyed(len(stored) + 1)])
    journal.close()
    journal = open_small(tmp_path)
    assert_holds(journal, stored)
    journal.close()
    files.unregister()
