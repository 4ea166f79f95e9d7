"""Every flipped bit of what is stored is reported, or changes nothing."""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections import Counter

import apsw
import pytest

from streamer.errors import StreamerError
from streamer.journal.journal_errors import JournalDamage, JournalError
from tests.streamer.journal.kit import Unreadable, keyed, open_small, picture, record, small_journal


def flip(data: bytes, bit: int) -> bytes:
    """Data with one bit changed."""
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@pytest.fixture
def copies(tmp_path):
    """Copies of a journal in which a file may be changed."""
    made = tmp_path / "made"
    stored = small_journal(made, snapshot=5)
    number = iter(range(1 << 30))

    def copy(name: str, content: bytes):
        directory = tmp_path / f"copy{next(number)}"
        shutil.copytree(made, directory, copy_function=shutil.copyfile)
        (directory / name).write_bytes(content)
        return directory

    copy.made, copy.stored = made, stored
    return copy


def test_every_flipped_bit_of_a_record(tmp_path):
    """In the data files, by reading: each is reported with its file, place and record."""
    stored = [keyed(1, b"ab", b"", b"c" * 7), record(2), keyed(3, b"d")]
    journal = open_small(tmp_path)
    journal.append(stored)
    path = tmp_path / "records-00000001"
    whole = path.read_bytes()
    assert whole[64:74] == b"ab" + b"c" * 7 + b"d"
    for bit in range(64 * 8, 74 * 8):
        path.write_bytes(flip(whole, bit))
        number, offset = (1, 64) if bit < 73 * 8 else (3, 73)
        with pytest.raises(JournalDamage) as error:
            list(journal.records(0))
        assert (error.value.file, error.value.offset, error.value.record) == (
            str(path),
            offset,
            number,
        )
        assert str(error.value) == f"{path}, offset {offset}, record {number}: wrong checksum"
        assert [str(one) for one in journal.verify()] == [str(error.value)]
        # what comes before it is returned
        assert list(journal.records(0, number - 1)) == stored[: number - 1]
    path.write_bytes(whole)
    assert list(journal.records(0)) == stored
    journal.close()


def test_every_flipped_bit_of_a_snapshot(copies):
    """The start is refused, and the file is named."""
    name = "snapshot-00000001"
    whole = (copies.made / name).read_bytes()
    for bit in range(0, len(whole) * 8, 3):
        with pytest.raises(JournalDamage, match="snapshot: wrong checksum: --accept-loss"):
            picture(copies(name, flip(whole, bit)))
    with pytest.raises(JournalDamage, match="snapshot"):
        picture(copies(name, whole[:-1]))


@pytest.mark.whole
def test_flipped_bits_of_the_index(copies):
    """In any byte of SQLite's file: refused, or nothing that is said differs."""
    name = "index.sqlite"
    for left in copies.made.glob("index.sqlite-*"):
        left.unlink()  # closed: all is in the main file
    whole = (copies.made / name).read_bytes()
    expected = picture(copies(name, whole))
    chance = random.Random(7)
    refused = 0
    bits = chance.sample(range(len(whole) * 8), 600)
    for bit in bits:
        directory = copies(name, flip(whole, bit))
        try:
            found = picture(directory)
        except StreamerError:
            refused += 1
        else:
            if found != expected:  # what opens says, when asked, that it is damaged
                journal = open_small(directory, durability="os")
                assert journal.verify(), bit
                journal.close()
        shutil.rmtree(directory)
    assert refused > len(bits) // 10


@pytest.mark.whole
def test_flipped_bits_of_the_log(tmp_path):
    """SQLite drops its log from the damage on and says nothing: the data files tell.

    Of the last group alone that looks the same as a power cut within its commit.
    """
    made = tmp_path / "made"
    journal = open_small(made)
    stored = [keyed(at, b"x" * 300) for at in range(1, 9)]
    for one in stored:
        journal.append([one])
    shutil.copytree(made, tmp_path / "killed", copy_function=shutil.copyfile)
    journal.close()
    wal = (tmp_path / "killed" / "index.sqlite-wal").read_bytes()
    chance = random.Random(8)
    heads = Counter()
    for bit in chance.sample(range(len(wal) * 8), 500):
        directory = tmp_path / "copy"
        shutil.copytree(tmp_path / "killed", directory, copy_function=shutil.copyfile)
        (directory / "index.sqlite-wal").write_bytes(flip(wal, bit))
        try:
            journal = open_small(directory, durability="os")
        except StreamerError:
            heads["refused"] += 1
        else:
            heads[journal.head] += 1
            assert list(journal.records(0)) == stored[: journal.head]
            journal.close()
        shutil.rmtree(directory)
    assert set(heads) <= {"refused", 7, 8}, heads
    assert heads["refused"] > 100, heads


def test_every_flipped_bit_of_every_column(copies):
    """Through SQL, so that SQLite itself sees nothing wrong."""
    whole = (copies.made / "index.sqlite").read_bytes()
    for left in copies.made.glob("index.sqlite-*"):
        left.unlink()
    directory = copies("index.sqlite", whole)
    database = apsw.Connection(str(directory / "index.sqlite"))
    database.pragma("synchronous", "off")
    tables = {"state": "id", "records": "at", "producers": "name", "snapshots": "id"}
    tried = 0
    for table, number in tables.items():
        rows = list(database.execute(f"SELECT * FROM {table}"))
        columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
        row = dict(zip(columns, rows[len(rows) // 2], strict=True))
        for column, value in row.items():
            for changed in changes(value):
                query = f"UPDATE {table} SET {column} = ? WHERE {number} IS ?"
                try:
                    database.execute(query, (changed, row[number]))
                except (apsw.MismatchError, apsw.ConstraintError):  # of numbers of rows
                    continue
                with pytest.raises(JournalDamage):
                    picture_of_all(directory)
                back = changed if column == number else row[number]
                database.execute(query, (value, back))
                tried += 1
    assert tried > 1000
    database.close()
    picture_of_all(directory)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EACCES])
def test_what_this_process_lacks_is_no_damage(copies, monkeypatch, number):
    """Nothing is given up for it, and nobody is told to."""
    directory = copies("lock", b"")
    opened = os.open

    def open_(path, *how):
        if "records-" in str(path) and how == (os.O_RDONLY,):
            raise OSError(number, os.strerror(number))
        return opened(path, *how)

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", open_)
        for accept_loss in (False, True):
            with pytest.raises(JournalError, match=r"cannot be read: .*: try again") as error:
                open_small(directory, accept_loss=accept_loss)
            assert not isinstance(error.value, JournalDamage)
    journal = open_small(directory)
    assert list(journal.records(0)) == copies.stored
    journal.close()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (apsw.NoMemError, 0),
        (apsw.ProtocolError, 0),
        (apsw.BusyError, 0),
        (apsw.CantOpenError, 0),
        (apsw.IOError, apsw.SQLITE_IOERR_NOMEM),
    ],
)
def test_an_index_that_cannot_be_read_now_is_not_damaged(copies, monkeypatch, error, code):
    journal = open_small(copies("lock", b""))
    raised = error("why")
    raised.extendedresult = code
    with monkeypatch.context() as patched:
        patched.setattr(journal._index, "_db", Unreadable(raised))
        with pytest.raises(JournalError, match=r"index\.sqlite: why: try again") as found:
            list(journal.records(0))
        assert not isinstance(found.value, JournalDamage)
    assert list(journal.records(0)) == copies.stored
    journal.close()


def changes(value) -> list[object]:
    """All values that differ from one in a bit, and another type."""
    if isinstance(value, int):
        return [flipped(value, bit) for bit in range(64)] + [None, b"text"]
    if isinstance(value, bytes):
        return [flip(value, bit) for bit in range(min(len(value), 24) * 8)] + [None, value + b"\0"]
    return [0, b""]


def flipped(value: int, bit: int) -> int:
    """A signed number of 64 bits with one changed."""
    changed = (value ^ (1 << bit)) & ((1 << 64) - 1)
    return changed - (1 << 64) if changed >> 63 else changed


def picture_of_all(directory) -> None:
    """Open, and check everything."""
    journal = open_small(directory, durability="os")
    try:
        for damage in journal.verify():
            raise damage
    finally:
        journal.close()
