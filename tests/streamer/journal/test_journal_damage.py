"""Every flipped bit of what is stored is reported, or changes nothing."""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import closing

import apsw
import pytest

from streamer.journal.record import JournalDamage, JournalError
from streamer.journal.record_index import Index
from streamer.journal.store import damages
from tests.faults.flips import INDEX, Killed
from tests.streamer.journal.kit import (
    SMALL,
    Unreadable,
    keyed,
    open_small,
    picture,
    record,
    small_journal,
    verify,
)


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
    begin = 512 + 64  # of the second group: the first is that of the start
    assert whole[begin : begin + 10] == b"ab" + b"c" * 7 + b"d"
    for bit in range(begin * 8, (begin + 10) * 8):
        path.write_bytes(flip(whole, bit))
        number, offset = (1, begin) if bit < (begin + 9) * 8 else (3, begin + 9)
        with pytest.raises(JournalDamage) as error:
            list(journal.records(0))
        assert (error.value.file, error.value.offset, error.value.record) == (
            str(path),
            offset,
            number,
        )
        assert str(error.value) == f"{path}: offset {offset}, record {number}: wrong checksum"
        assert str(error.value) in [str(one) for one in verify(journal)]
        # what comes before it is returned
        assert list(journal.records(0, number - 1)) == stored[: number - 1]
    path.write_bytes(whole)
    assert list(journal.records(0)) == stored


def test_every_flipped_bit_of_a_snapshot(copies):
    """The start is refused, and the file is named."""
    name = "snapshot-00000001"
    whole = (copies.made / name).read_bytes()
    for bit in range(0, len(whole) * 8, 3):
        with pytest.raises(JournalDamage, match="snapshot: wrong checksum: --accept-loss"):
            picture(copies(name, flip(whole, bit)))
    with pytest.raises(JournalDamage, match="snapshot"):
        picture(copies(name, whole[:-1]))


@pytest.fixture
def killed(tmp_path):
    """What a killed owner left, in which files may be changed; recovery needs records from 5 on."""
    return Killed(tmp_path / "made", 8, size=300, sizes=SMALL)


APART = pytest.mark.parametrize("apart", [1499, pytest.param(61, marks=pytest.mark.slow)])
"""Bits from one that is flipped to the next: a prime, so that all places in a byte come."""


READ_ONLY = 18 * 8
"""The first bit of the write version in SQLite's header: any other one forbids to write."""


@APART
@pytest.mark.parametrize("name", INDEX)
def test_flipped_bits_of_the_index(killed, name, apart):
    """The index is made again from the data files, whichever of its bits has changed."""
    if name.endswith("shm"):  # large, and made anew by the first that opens it
        apart *= 7
    for bit in [READ_ONLY, *killed.bits(name)[::apart]]:
        killed.check(killed.flipped(name, bit))


@APART
def test_flipped_bits_of_the_data(killed, apart):
    """Each is reported with its place, at the start or by a check, or is of no record or group."""
    name = "records-00000001"
    data = killed.whole[name]
    places = [at for at in range(0, len(data), 512) if data.startswith(b"kmer-lg3", at)]
    path = str(killed.folder / name)
    unused = 0
    for bit in range(0, places[-1] * 8, apart):
        flipped = flip(data, bit)
        place = max(at for at in places if at <= bit // 8)
        try:
            with closing(killed.open({name: flipped})) as journal:
                found = verify(journal)
                assert (journal.stream, journal.head) == (killed.stream, 8)
        except JournalDamage as damage:
            found = [damage]
        unused += not found
        if found:
            there = {(one.file, one.offset) for one in found}
            assert there & {(path, place), (path, place + 64)}, bit
        else:  # between two groups, or at the end of a header
            end = place + len(data[place : place + 512].rstrip(b"\0"))
            assert bit // 8 >= end or bit // 8 - place in range(60, 64), bit
    assert 0 < unused < places[-1] * 8 // apart


@pytest.mark.parametrize("left", [None, b"", b"no database, but a long enough text " * 100])
def test_index_that_is_gone(killed, left):
    """Deleted, empty or overwritten."""
    for names in [*((name,) for name in INDEX), INDEX[:2], INDEX]:
        assert killed.check(dict.fromkeys(names, left)) or INDEX[0] not in names


def test_damaged_headers_of_groups_are_reported(killed):
    """With the index, all is there; without, what the group had is missing, and no more."""
    data = killed.whole["records-00000001"]
    places = [at for at in range(0, len(data), 512) if data.startswith(b"kmer-lg3", at)]
    assert len(places) == 11
    for place in places[:10]:
        changed = {"records-00000001": flip(data, (place + 30) * 8)}
        killed.check(changed)
        with closing(killed.open(changed)) as journal:
            assert any(one.offset == place for one in verify(journal))
        at = places.index(place) - 1
        without = changed | dict.fromkeys(INDEX)
        if at > 4:  # recovery needs it
            with pytest.raises(JournalDamage, match="is missing"):
                killed.open(without)
        with closing(killed.open(without, accept_loss=True)) as journal:
            said = "\n".join(journal.notes)
            assert f"offset {place}: the header of a group is damaged" in said
            assert list(journal.records(0)) == [one for one in killed.stored if one.at != at]
    changed = {"records-00000001": flip(data, (places[10] + 30) * 8)} | dict.fromkeys(INDEX)
    with closing(
        killed.open(changed)
    ) as journal:  # what it had is not known: no number comes again
        assert journal.stream != killed.stream
        assert "its end is damaged: it goes on as another stream" in journal.notes[-1]


def test_a_last_group_that_is_torn_is_reported_and_left_out(killed):
    """Without the index nothing tells it from one that was never acknowledged."""
    data = killed.whole["records-00000001"]
    last = data.rindex(b"x" * 300)
    torn = data[: last + 9] + bytes(len(data) - last - 9)  # and with it the snapshot's group
    with pytest.raises(JournalDamage, match="record 8: wrong checksum"):
        killed.open({"records-00000001": torn})
    gone = dict.fromkeys(INDEX) | {"records-00000001": torn}
    with closing(killed.open(gone)) as journal:
        assert list(journal.records(0)) == killed.stored[:7]
        assert "a group is incomplete: never acknowledged, or damaged" in journal.notes[-1]
        journal.append([keyed(8, b"y")])
        assert verify(journal) == []


@pytest.mark.whole
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
                assert index_damages(directory), (column, changed)
                back = changed if column == number else row[number]
                database.execute(query, (value, back))
                tried += 1
    assert tried > 1000
    database.close()
    assert index_damages(directory) == []


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EACCES])
def test_what_this_process_lacks_is_no_damage(copies, monkeypatch, number):
    """Nothing is given up for it, and nobody is told to."""
    directory = copies("records-00000009", b"")
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
    journal = open_small(copies("records-00000009", b""))
    raised = error("why")
    raised.extendedresult = code
    with monkeypatch.context() as patched:
        patched.setattr(journal._index, "_db", Unreadable(raised))
        with pytest.raises(JournalError, match=r"index\.sqlite: why: try again") as found:
            list(journal.records(0))
        assert not isinstance(found.value, JournalDamage)
    assert list(journal.records(0)) == copies.stored


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


def index_damages(directory) -> list[JournalDamage]:
    """All that is wrong with an index."""
    index = Index(directory)
    try:
        return list(damages(index, directory, everything=True))
    except JournalDamage as damage:
        return [damage]
    finally:
        index.close()
