"""Damage is refused at a start, and given up for good once that is accepted."""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import closing
from dataclasses import replace

import apsw
import pytest

from streamer.journal.data_files import HEADER_BYTES
from streamer.journal.reader import JournalReader
from streamer.journal.record import JournalDamage, JournalUnread, Key, Record
from streamer.journal.record_index import Index
from tests.streamer.journal.kit import assert_holds, keyed, last_of_each, open_small, record, verify


def make(directory, count: int = 10, *, snapshot: int | None = None):
    """A closed journal of one record a group, and its records."""
    journal = open_small(directory)
    stored = [keyed(at, b"x" * 9000, producer=f"p{at % 3}") for at in range(1, count + 1)]
    for one in stored:
        journal.append([one])
    if snapshot is not None:
        journal.put_snapshot(snapshot, b"s", (b"state",))
    journal.close()
    return stored


def change(directory, *statements: str) -> None:
    """Change the index behind the journal's back."""
    database = apsw.Connection(str(directory / "index.sqlite"))
    for statement in statements:
        database.execute(statement)
    database.close()


def forget(directory, *numbers: int) -> None:
    """Damage the groups of records, whose headers or rows say what they are, and lose the index."""
    with closing(Index(directory)) as index:
        (state,) = [index.state()]
        rows = [row for at in numbers for row in index.records(at - 1, at)]
    for row in rows:
        assert state.head >= row.at
        damage_data(directory, row.file, row.offset - HEADER_BYTES + 30)
    for path in directory.glob("index.sqlite*"):
        path.unlink()


def damage_data(directory, number: int, offset: int) -> None:
    """Change a byte of a data file."""
    path = directory / f"records-{number:08d}"
    content = bytearray(path.read_bytes())
    content[offset] ^= 0x10
    path.write_bytes(content)


def test_damage_before_the_snapshot_is_no_hindrance(tmp_path):
    """Recovery does not need it; who reads it is told, and a check finds it."""
    stored = make(tmp_path, snapshot=5)
    damage_data(tmp_path, 1, 600)  # of record 1
    journal = open_small(tmp_path)
    assert list(journal.records(5)) == stored[5:]
    with pytest.raises(JournalDamage, match="offset 576, record 1: wrong checksum"):
        list(journal.records(0))
    assert [damage.record for damage in verify(journal)] == [1]
    journal.close()
    journal = open_small(tmp_path, accept_loss=True)
    assert [damage.record for damage in journal.accepted] == [1]
    assert list(journal.records(0)) == stored[1:]


def test_damaged_records_are_given_up(tmp_path):
    """They keep their numbers; all else goes on; the next start finds nothing wrong."""
    stored = make(tmp_path)
    open_small(tmp_path).close()  # a group after them
    damage_data(tmp_path, 1, 600)
    with closing(Index(tmp_path)) as index:
        for row in index.records(7, 10):
            damage_data(tmp_path, row.file, row.offset + 7)
    forget(tmp_path, 4, 6)
    with pytest.raises(JournalDamage) as error:
        open_small(tmp_path)
    assert "the first of" in str(error.value)
    assert "--accept-loss starts without" in str(error.value)
    assert "\n" not in str(error.value)

    stream = None
    for accept in (True, False, True):
        journal = open_small(tmp_path, accept_loss=accept)
        stream = stream or journal.stream
        assert journal.stream == stream
        assert journal.head == 10
        assert list(journal.records(0)) == [stored[1], stored[2], stored[4], stored[6]]
        # of those whose rows are whole the index still says what they were
        known = {
            at: replace(stored[at - 1], frames=(), key=None, lost=True) for at in (1, 8, 9, 10)
        }
        lost = {
            at: known.get(at, Record(at, "", b"", (), None, 0, lost=True))
            for at in (1, 4, 6, 8, 9, 10)
        }
        assert list(journal.history(0, 10)) == [lost.get(one.at, one) for one in stored]
        with closing(JournalReader(tmp_path)) as reader:
            assert [lost.get(one.at) for one in reader.outlines(0) if one.at in lost] == [
                *lost.values()
            ]
        # the headers stay as they are
        assert all("group" in damage.problem for damage in verify(journal))
        assert journal.usage().bytes == sum(len(one.meta) for one in known.values()) + sum(
            len(stored[at - 1].meta) + 9000 for at in (2, 3, 5, 7)
        )
        assert {tuple(row) for row in journal.producers()} == last_of_each(stored)
        assert journal.content("p1", 1, 4) is None
        assert journal.content("p2", 1, 5) == 35
        journal.close()
    journal = open_small(tmp_path)
    journal.append([record(11, b"new")])
    assert [one.at for one in journal.records(0)] == [2, 3, 5, 7, 11]


def test_damaged_snapshot_is_given_up(tmp_path):
    stored = make(tmp_path, snapshot=5)
    (tmp_path / "snapshot-00000001").write_bytes(b"stale")
    with pytest.raises(JournalDamage, match="snapshot: wrong checksum"):
        open_small(tmp_path)
    for accept in (True, False):
        journal = open_small(tmp_path, accept_loss=accept, keep_bytes=1)
        assert journal.snapshot() == (5, b"s", ())
        assert verify(journal) == []
        # what is in the records may be needed in its place
        assert journal.expire(1 << 62) == 0
        assert_holds(journal, stored)
        journal.close()
    journal = open_small(tmp_path, keep_bytes=1)
    journal.put_snapshot(7, b"", (b"whole",))
    assert journal.expire(1 << 62) == 7
    journal.close()
    open_small(tmp_path).close()


def test_damage_behind_a_snapshot_that_was_given_up_is_found(tmp_path):
    """A restart then reads the records before it, too."""
    make(tmp_path, snapshot=5)
    (tmp_path / "snapshot-00000001").unlink()
    open_small(tmp_path, accept_loss=True).close()
    damage_data(tmp_path, 1, 600)  # of record 1
    with pytest.raises(JournalDamage, match="record 1: wrong checksum: --accept-loss"):
        open_small(tmp_path)


@pytest.mark.parametrize(
    ("damages", "snapshot", "oldest", "same"),
    [
        # its row says how far batches had gone
        (["data"], None, 1, True),
        # so does a later record, or a snapshot
        ([8], None, 1, True),
        ([9, 10], 10, 1, True),
        (["snapshot"], 10, 11, True),
        # here nothing does, but the head is known from a later group
        ([10], None, 1, False),
        ([10], 9, 1, False),
    ],
)
def test_no_stream_goes_on_from_what_is_not_known(tmp_path, damages, snapshot, oldest, same):
    """Else numbers of batches would come again in it: those of records never do."""
    make(tmp_path, snapshot=snapshot)
    journal = open_small(tmp_path, keep_bytes=1)
    journal.expire(1 << 62) if oldest > 1 else None
    assert journal.oldest == oldest
    stream = journal.stream
    journal.close()
    for damage in damages:
        if damage == "data":
            path = tmp_path / "records-00000002"
            path.write_bytes(path.read_bytes().replace(b"x", b"y"))
        elif damage == "snapshot":
            (tmp_path / "snapshot-00000001").unlink()
    numbers = [one for one in damages if isinstance(one, int)]
    if numbers:
        open_small(tmp_path).close()  # a group after them
        forget(tmp_path, *numbers)
    journal = open_small(tmp_path, accept_loss=True)
    assert (journal.stream == stream) == same
    assert journal.head == 10
    # once is enough
    stream = journal.stream
    journal.close()
    with closing(open_small(tmp_path, accept_loss=True)) as journal:
        assert journal.stream == stream
        assert journal.accepted == []


def test_lost_producer_is_known_from_its_records(tmp_path):
    """Its last group is damaged; a key that was stored is not taken again."""
    stored = make(tmp_path)
    open_small(tmp_path).close()
    forget(tmp_path, 10)  # of p1
    with pytest.raises(JournalDamage, match=r"a producer is missing"):
        open_small(tmp_path)
    journal = open_small(tmp_path, accept_loss=True)
    assert {row.producer for row in journal.producers()} == {"p0", "p1", "p2"}
    (found,) = [row for row in journal.producers() if row.producer == "p1"]
    last = stored[6]
    assert found == ("p1", last.key.epoch, last.key.sequence, last.key.mark, last.time)
    assert list(journal.records(0)) == stored[:9]
    journal.append([record(11, key=Key("p1", 1, 12, 0, b""))])
    journal.close()
    journal = open_small(tmp_path)
    assert len(list(journal.producers())) == 3


@pytest.mark.parametrize("how", ["older index", "log lost"])
@pytest.mark.parametrize("gone", [2, 4, 9])
def test_index_that_went_back_is_found_out(tmp_path, monkeypatch, how, gone):
    """An index from a copy, or without its log, learns of the later records."""
    directory = tmp_path / "j"
    stored = make(directory, 10 - gone)
    older = (directory / "index.sqlite").read_bytes()
    journal = open_small(directory)
    for at in range(11 - gone, 11):
        stored.append(keyed(at, b"x" * 9000))
        journal.append(stored[-1:])
    stream = journal.stream
    if how == "log lost":  # of one that was killed: copied while it is open
        killed = tmp_path / "killed"
        shutil.copytree(directory, killed)
        journal.close()
        directory = killed
    else:
        journal.close()
    (directory / "index.sqlite").write_bytes(older)
    for name in ("index.sqlite-wal", "index.sqlite-shm"):
        (directory / name).unlink(missing_ok=True)
    opened = os.open

    def no_data(path, *how):
        if "records-" in str(path):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return opened(path, *how)

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", no_data)
        for accept_loss in (False, True):
            with pytest.raises(JournalUnread, match="Too many open files: try again"):
                open_small(directory, accept_loss=accept_loss)
    with closing(open_small(directory)) as journal:
        assert (how == "older index") == (journal.stream == stream)
        assert_holds(journal, stored)
        journal.append([keyed(11, b"y" * 9000)])
        assert verify(journal) == []
        assert journal.head == 11


@pytest.mark.parametrize(
    "statements",
    [
        ["UPDATE state SET head = 9"],
        ["CREATE TABLE more (a)"],
        ["DELETE FROM records WHERE at = 3"],
        ["DELETE FROM producers WHERE name = x'7031'"],
        ["UPDATE producers SET mark = x'00' WHERE name = x'7031'"],
        ["UPDATE snapshots SET at = 4"],
        ["PRAGMA application_id = 5"],
        ["PRAGMA user_version = 99"],
        # each row by itself is whole: the number is part of it
        [
            "UPDATE records SET at = 99 WHERE at = 2",
            "UPDATE records SET at = 2 WHERE at = 3",
            "UPDATE records SET at = 3 WHERE at = 99",
        ],
    ],
)
def test_a_changed_index_is_made_anew(tmp_path, statements):
    stored = make(tmp_path, snapshot=5)
    change(tmp_path, *statements)
    with closing(open_small(tmp_path)) as journal:
        (note,) = journal.notes
        assert "index.sqlite" in note
        assert note.endswith("the index was made anew")
        assert_holds(journal, stored)
        assert journal.snapshot() == (5, b"s", (b"state",))
