"""The journal returns what was stored, over restarts and whatever the sizes."""

from __future__ import annotations

import os
import random
import shutil
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import apsw
import numpy as np
import pytest

from streamer.journal.disk import Disk
from streamer.journal.record import (
    Begun,
    JournalDamage,
    JournalError,
    JournalFull,
    JournalInUse,
    Key,
    Record,
)
from streamer.journal.store import Journal
from tests.streamer.journal.kit import (
    AWKWARD,
    assert_holds,
    groups,
    keyed,
    open_small,
    random_record,
    record,
    verify,
)
from tests.waiting import DEADLINE, until


def test_journal_of_random_groups_over_restarts(tmp_path):
    """Every few groups it is opened again; epochs count, numbers and the stream go on."""
    chance = random.Random(1)
    stored: list[Record] = []
    streams = set()
    for epoch in range(1, 12):
        journal = open_small(tmp_path / "j")
        assert journal.epoch == epoch
        streams.add(journal.stream)
        assert_holds(journal, stored)
        for group in groups(chance.randrange(20), chance, len(stored) + 1):
            journal.append(group)
            journal.checkpoint()
            stored += group
        assert_holds(journal, stored)
        assert verify(journal) == []
        journal.close()
    assert len(stored) > 200
    (stream,) = streams
    assert len(stream) == 16
    int(stream, 16)


@pytest.mark.parametrize("size", AWKWARD)
@pytest.mark.parametrize("before", [0, 300, 60_000])
def test_journal_of_awkward_sizes(tmp_path, size, before):
    """Frames that end at the ends of pages and files, and records larger than a file."""
    journal = open_small(tmp_path)
    stored = [
        record(1, bytes(before)),
        record(2, b"x" * size),
        record(3),
        record(4, b"", b"", b"y" * size, b""),
    ]
    journal.append(stored[:1])
    journal.append(stored[1:3])
    journal.append(stored[3:])
    assert_holds(journal, stored)
    journal.close()
    journal = open_small(tmp_path)
    assert_holds(journal, stored)
    journal.append([record(5, b"z" * size)])
    assert len(list(journal.records(4))) == 1


def test_journal_of_large_record(tmp_path):
    """More than a group's usual limit, and more buffers than one call takes."""
    chance = np.random.default_rng(2)
    large = chance.integers(0, 256, 40 << 20, dtype=np.uint8)
    many = [bytes([n % 251]) * (n % 3) for n in range(5000)]
    journal = open_small(tmp_path)
    stored = [record(1, b"a"), record(2, memoryview(large), b"end"), record(3, *many)]
    journal.append(stored)
    journal.close()
    journal = open_small(tmp_path)
    assert_holds(journal, stored)


def test_journal_of_a_large_group(tmp_path):
    """Many records, those whose frames are joined before they are written, and larger ones."""
    chance = random.Random(7)
    stored = [random_record(at, chance) for at in range(1, 100)]
    large = [b"", chance.randbytes(5), chance.randbytes((1 << 18) + 1), b"", chance.randbytes(3)]
    stored += [record(100, *large), record(101, *large[:2], *large[3:]), record(102)]
    journal = open_small(tmp_path)
    journal.append(stored)
    assert_holds(journal, stored)
    assert not verify(journal)


@pytest.mark.parametrize("count", [3, 100])
def test_journal_stores_a_group_or_nothing(tmp_path, monkeypatch, count):
    """The last row of a group fails: none of the others is stored."""
    journal = open_small(tmp_path)
    stored = [keyed(1)]
    journal.append(stored)
    # the index has no second row for this key, which its owner would refuse before: the group,
    # whose data is stored, is taken back
    bad = keyed(count + 1)
    group = [keyed(at) for at in range(2, count + 1)] + [
        Record(bad.at, bad.kind, bad.meta, (), Key("p", 1, 1, 7, b""), bad.time)
    ]
    monkeypatch.setattr(journal, "_followers", lambda _: {})
    with pytest.raises(JournalDamage, match="UNIQUE constraint failed"):
        journal.append(group)
    journal.close()
    journal = open_small(tmp_path)
    assert_holds(journal, stored)
    assert verify(journal) == []


def test_journal_takes_arrays(tmp_path):
    """Lengths count bytes, whatever the items of a buffer are."""
    items = np.arange(1000, dtype=np.int64)
    journal = open_small(tmp_path)
    journal.append([record(1, memoryview(items), memoryview(items[:0]), memoryview(items[:1]))])
    (back,) = journal.records(0)
    assert [bytes(frame) for frame in back.frames] == [items.tobytes(), b"", items[:1].tobytes()]
    journal.put_snapshot(1, b"", [memoryview(items)])
    snapshot = journal.snapshot()
    assert snapshot is not None
    assert bytes(snapshot.frames[0]) == items.tobytes()


def test_journal_ranges_of_records(tmp_path):
    journal = open_small(tmp_path)
    journal.append([record(at, b"r%d" % at) for at in range(1, 601)])
    for after, upto in [(0, 1), (0, 0), (5, 5), (5, 3), (255, 257), (599, 700), (600, None)]:
        end = 600 if upto is None else min(upto, 600)
        assert [r.at for r in journal.records(after, upto)] == list(range(after + 1, end + 1))


def test_journal_numbers_must_follow(tmp_path):
    """What does not follow is refused before anything is stored."""
    journal = open_small(tmp_path)
    journal.append([])
    journal.append([keyed(1), keyed(2)])
    later = Key("p", 0, 99, 0, b"")
    for wrong in [
        [record(4)],
        [record(2)],
        [record(3), record(5)],
        [record(3, key=Key("p", 1, 2, 0, b""))],
        [record(3, key=later)],
        [keyed(3), record(4, key=Key("p", 1, 3, 0, b""))],
    ]:
        with pytest.raises(ValueError, match="record"):
            journal.append(wrong)
    stored = [keyed(1), keyed(2), record(3, key=Key("p", 2, 1, 5, b""))]
    journal.append(stored[2:])
    assert_holds(journal, stored)


def test_journal_snapshots(tmp_path):
    """Each replaces the one before, also over a restart, and leaves one file."""
    journal = open_small(tmp_path)
    assert journal.snapshot() is None
    journal.append([record(at) for at in range(1, 10)])
    for at, frames in [(0, ()), (3, (b"",)), (3, (b"a" * 70_000, b"", b"b")), (9, (b"c",))]:
        journal.put_snapshot(at, b"meta %d" % at, frames)
        assert journal.snapshot() == (at, b"meta %d" % at, frames)
    for at in (8, 10):
        with pytest.raises(ValueError, match="snapshot"):
            journal.put_snapshot(at, b"", ())
    journal.close()
    journal = open_small(tmp_path)
    assert journal.snapshot() == (9, b"meta 9", (b"c",))
    assert len(list(tmp_path.glob("snapshot-*"))) == 1
    journal.put_snapshot(9, b"", ())
    assert len(list(tmp_path.glob("snapshot-*"))) == 1


def test_journal_snapshots_while_appending(tmp_path):
    """Another thread may store a snapshot: both go on, and each reads what is stored."""
    journal = open_small(tmp_path, keep_bytes=30_000)
    journal.append([keyed(1, b"x")])
    numbers = []

    def snapshots():
        while journal.head < 300:
            at = journal.head
            journal.put_snapshot(at, b"%d" % at, (b"s" * at,))
            snapshot = journal.snapshot()
            assert snapshot is not None
            assert snapshot.frames == (b"s" * at,)
            numbers.append(at)

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(snapshots)
        for at in range(2, 301):
            journal.append([keyed(at, b"x" * 1000)])
            journal.expire(0)
            assert [one.at for one in journal.records(at - 1)] == [at]
            # on a busy machine one of them would be through before the other began
            until(lambda at=at: other.done() or len(numbers) >= at // 40, "a snapshot")
        other.result()
    assert len(numbers) > 5
    assert journal.oldest > 1
    assert verify(journal) == []


def test_a_large_group_waits_for_a_reader(tmp_path):
    counts = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 1000000) "
    journal = open_small(tmp_path)
    begun, index = threading.Event(), journal._index

    def read():
        with index._reading():
            begun.set()
            return index._db.execute(counts + "SELECT max(x) FROM c").fetchall()

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read)
        begun.wait(DEADLINE)
        while not reading.done():  # some of these meet it
            journal.append([keyed(journal.head + 1 + i, b"x") for i in range(100)])
        assert reading.result() == [(1_000_000,)]


def test_journal_is_private(tmp_path):
    """Nobody else reads what is stored, whatever the umask."""
    directory = tmp_path / "parent" / "journal"
    before = os.umask(0)
    try:
        journal = open_small(directory)
        journal.append([record(1, b"x")])
        journal.put_snapshot(1, b"", (b"s",))
    finally:
        os.umask(before)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()}
    assert set(modes.values()) == {0o600}, modes
    assert len(modes) == 5
    journal.close()
    directory.chmod(0o755)
    open_small(directory).close()
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_journal_has_one_owner(tmp_path):
    journal = open_small(tmp_path)
    with pytest.raises(JournalInUse, match="in use by another process: stop"):
        open_small(tmp_path)
    journal.append([record(1)])
    journal.close()
    open_small(tmp_path).close()


def test_journal_of_another_meaning(tmp_path):
    """The difference is said, and nothing else."""
    open_small(tmp_path).close()
    for accept in (False, True):
        with pytest.raises(JournalError) as error:
            Journal(tmp_path, b"k=21 mode=grow strands=both", accept_loss=accept)
        assert str(error.value).startswith(f"{tmp_path}: its records are of `k=31`, this is `k=21`")
    for other, what in [
        (b"\xff", r"this is `\\xff`"),
        (b"k=31 mode=grow", "of `strands=both`, this is `k=31 mode"),
    ]:
        with pytest.raises(JournalError, match=what):
            Journal(tmp_path, other)
    open_small(tmp_path).close()


def test_journal_refuses_foreign_directories(tmp_path):
    """A folder with other files, a file, another program's database, a newer format."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.txt").touch()
    with pytest.raises(JournalError, match="holds other files"):
        open_small(other)
    assert [path.name for path in other.iterdir()] == ["thesis.txt"]
    with pytest.raises(JournalError, match="cannot hold a journal: Not a directory"):
        open_small(other / "thesis.txt")

    foreign = tmp_path / "foreign"
    foreign.mkdir()
    with apsw.Connection(str(foreign / "index.sqlite")) as database:
        database.execute("CREATE TABLE t (a)")
    database.close()
    with pytest.raises(JournalError, match="not of this program, or of another version"):
        open_small(foreign)
    (foreign / "index.sqlite").write_bytes(b"no database, but a long enough text " * 100)
    with pytest.raises(JournalDamage, match="not a database"):
        open_small(foreign)

    # of the version before
    before = tmp_path / "before"
    open_small(before).close()
    (before / "records-00000001").write_bytes(b"kmer-log" + bytes(504))
    with pytest.raises(JournalError, match="format 2, this version of the program reads 3: use an"):
        open_small(before)


@pytest.mark.parametrize("durability", ["os", "fsync"])
def test_journal_syncs_as_asked(tmp_path, monkeypatch, durability):
    """With ``os`` nothing waits for the disk; what it wrote is synced once ``fsync`` is asked."""
    synced = []
    real = os.fdatasync
    monkeypatch.setattr(os, "fdatasync", lambda fd: (synced.append(fd), real(fd)))
    stored = [keyed(1, b"x" * 500), keyed(2, b"y" * 70_000)]
    journal = open_small(tmp_path, durability=durability)
    journal.append(stored[:1])
    journal.append(stored[1:])
    assert len(synced) == (3 if durability == "fsync" else 0)
    journal.close()
    synced.clear()
    journal = open_small(tmp_path)
    # the last group is written again, and the start has one of its own
    assert len(synced) == 2 + (0 if durability == "fsync" else 2)
    assert_holds(journal, stored)


def test_journal_over_a_leftover_of_its_making(tmp_path):
    """A start that ended before anything was stored is begun again."""
    (tmp_path / "index.sqlite").touch()
    (tmp_path / "records-00000001").write_bytes(bytes(65536))
    with closing(open_small(tmp_path)) as journal:
        assert journal.epoch == 1
        journal.append([record(1)])
    # with the tables of an index, and without data
    with (
        closing(open_small(tmp_path / "j")),
        apsw.Connection(str(tmp_path / "j" / "index.sqlite")) as database,
    ):
        database.execute("DELETE FROM state")
    (tmp_path / "j" / "records-00000001").unlink()
    with closing(open_small(tmp_path / "j")) as journal:
        assert journal.epoch == 1


def _dead(journal) -> None:
    """End like a killed process."""
    journal._failure = "killed"
    journal.close()


@pytest.mark.parametrize("how", ["delete", "rename", "replace", "read-only", "data", "new data"])
def test_nothing_is_stored_where_a_restart_would_not_find_it(tmp_path, how):
    """The folder or the file is not where it was: full, until it is there again."""
    directory, aside = tmp_path / "j", tmp_path / "aside"
    journal = open_small(directory)
    stored = [keyed(1, b"x")]
    journal.append(stored)
    path, problem = directory, "was deleted, renamed or replaced: move it back, or start again"
    if how == "read-only":
        directory.chmod(0o500)
        problem = "cannot be written any more: give the permission back"
    elif how == "delete":
        shutil.copytree(directory, aside)
        shutil.rmtree(directory)
    elif "data" in how:
        path, problem = directory / "records-00000001", "was deleted or replaced: put it back, or"
        path.rename(aside)
        if how == "new data":
            shutil.copyfile(aside, path)
    else:
        directory.rename(aside)
        if how == "replace":
            shutil.copytree(aside, directory)
    for store in (
        lambda: journal.append([keyed(2, b"y")]),
        lambda: journal.append([Begun("q", 1, 5)]),
        lambda: journal.put_snapshot(1, b"", (b"s",)),
    ):
        with pytest.raises(JournalFull) as error:
            store()
        assert str(error.value).startswith(f"{path}: {problem}")
    if how == "delete":
        _dead(journal)
        return
    if how == "read-only":
        directory.chmod(0o700)
    elif "data" in how:
        aside.replace(path)
    else:
        shutil.rmtree(directory, ignore_errors=True)
        aside.rename(directory)
    stored.append(keyed(2, b"y"))
    journal.append(stored[1:])
    _dead(journal)
    journal = open_small(directory)
    assert journal.notes == []
    assert_holds(journal, stored)


def test_folder_that_goes_while_a_group_is_written(tmp_path):
    """What was written there is not acknowledged."""
    directory, aside = tmp_path / "j", tmp_path / "aside"

    class Renaming(Disk):
        def sync(self, fd):
            super().sync(fd)
            if directory.exists() and journal.head == 1:
                directory.rename(aside)

    disk = Renaming()
    journal = open_small(directory)
    journal.append([keyed(1, b"x")])
    journal._data._disk = disk
    with pytest.raises(JournalFull, match="was deleted, renamed or replaced"):
        journal.append([keyed(2, b"y")])
    assert journal.head == 1
    _dead(journal)
    aside.rename(directory)
    with closing(open_small(directory)) as journal:
        assert_holds(journal, [keyed(1, b"x")])


def test_a_folder_has_one_owner_whatever_is_deleted_in_it(tmp_path):
    """What is locked is the folder, not a file in it; under another name it is still locked."""
    journal = open_small(tmp_path / "j")
    journal.append([keyed(1)])
    for path in (tmp_path / "j").glob("index*"):
        path.unlink()
    (tmp_path / "link").symlink_to("j")
    for name in ("j", "link"):
        with pytest.raises(JournalInUse):
            open_small(tmp_path / name)
    _dead(journal)
    with closing(open_small(tmp_path / "link")) as journal:
        assert_holds(journal, [keyed(1)])


def test_a_copy_is_another_stream(tmp_path, monkeypatch):
    """A folder that was renamed is not; nor is one that was opened again."""
    with closing(open_small(tmp_path / "a")) as journal:
        stream = journal.stream
        journal.append([keyed(1, b"x")])
        shutil.copytree(tmp_path / "a", tmp_path / "copy")
        journal.append([keyed(2, b"y")])
    (tmp_path / "a").rename(tmp_path / "b")
    with closing(open_small(tmp_path / "b")) as journal:
        assert (journal.stream, journal.notes) == (stream, [])
        assert_holds(journal, [keyed(1, b"x"), keyed(2, b"y")])
    for _ in range(2):
        with closing(open_small(tmp_path / "copy")) as journal:
            assert journal.stream != stream
            assert_holds(journal, [keyed(1, b"x")])
            said = journal.notes
    assert said == []
    machine = tmp_path / "machine-id"
    machine.write_text("another\n")
    monkeypatch.setattr("streamer.journal.store._MACHINE", machine)
    with closing(open_small(tmp_path / "b")) as journal:
        assert journal.stream != stream
        (note,) = journal.notes
        assert note == f"{tmp_path}/b: a copy of a journal: it goes on as another stream"
