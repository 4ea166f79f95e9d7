"""Another process reads while the owner writes."""

from __future__ import annotations

import multiprocessing
import random

import msgpack
import pytest

from streamer.journal.data_files import PIECE_BYTES
from streamer.journal.reader import JournalReader
from streamer.journal.record import JournalDamage, JournalError, JournalExpired
from tests.streamer.journal.kit import groups, keyed, open_small, record
from tests.waiting import until

SPAWN = multiprocessing.get_context("spawn")


def test_reader_sees_what_was_committed(tmp_path):
    journal = open_small(tmp_path)
    reader = JournalReader(tmp_path)
    assert (reader.stream, reader.epoch, reader.head) == (journal.stream, 1, 0)
    stored = [record(1, b"a" * 100), record(2)]
    journal.append(stored)
    assert reader.head == 0
    assert list(reader.records(0)) == []
    assert reader.refresh() == 2
    assert list(reader.records(0)) == stored
    assert list(reader.records(0, 1)) == stored[:1]
    assert reader.snapshot() is None
    journal.put_snapshot(2, b"m", (b"s",))
    row = reader.snapshot()
    assert (row.at, row.meta) == (2, b"m")
    assert frames_of(reader.open_snapshot(row)) == [b"s"]
    journal.close()
    journal = open_small(tmp_path, keep_bytes=1)
    journal.expire(0)
    assert list(reader.records(2)) == []
    with pytest.raises(JournalExpired, match="begin with 3"):
        list(reader.records(0))
    reader.refresh()
    assert (reader.epoch, reader.oldest, reader.head) == (2, 3, 2)
    reader.close()


def frames_of(snapshot) -> list[bytes]:
    """All frames, read piece by piece, after a check in small steps."""
    until(lambda: snapshot.check(1), "the end of the check")
    count = len(msgpack.unpackb(snapshot.row.lengths))
    pieces = [[*snapshot.pieces(frame)] for frame in range(count)]
    assert all(len(piece) == PIECE_BYTES for frame in pieces for piece in frame[:-1])
    return [b"".join(frame) for frame in pieces]


def test_a_snapshot_is_read_in_pieces_also_when_it_was_replaced(tmp_path):
    journal = open_small(tmp_path)
    reader = JournalReader(tmp_path)
    chance = random.Random(2)
    frames = [chance.randbytes(size) for size in (PIECE_BYTES, 0, 3 * PIECE_BYTES + 1, 5)]
    journal.put_snapshot(0, b"", frames)
    row = reader.snapshot()
    snapshot = reader.open_snapshot(row)
    journal.put_snapshot(0, b"", ())
    assert frames_of(snapshot) == frames
    assert [snapshot.size(frame) for frame in range(4)] == [len(frame) for frame in frames]
    assert reader.open_snapshot(row) is None
    assert frames_of(reader.open_snapshot(reader.snapshot())) == []
    reader.close()


def test_a_changed_piece_of_a_snapshot_is_found(tmp_path):
    """Before it is used, and also if it changes only then."""
    journal = open_small(tmp_path)
    reader = JournalReader(tmp_path)
    journal.put_snapshot(0, b"", (bytes(2 * PIECE_BYTES), b"more"))
    path = tmp_path / "snapshot-00000001"
    whole = path.read_bytes()
    snapshot = reader.open_snapshot(reader.snapshot())
    until(lambda: snapshot.check(1 << 20), "the end of the check")
    for place in (0, PIECE_BYTES, 2 * PIECE_BYTES + 1):
        path.write_bytes(whole[:place] + b"\1" + whole[place + 1 :])
        with pytest.raises(JournalDamage, match=f"^{path}: offset .*: snapshot: wrong checksum$"):
            frames_of(reader.open_snapshot(reader.snapshot()))
        with pytest.raises(JournalDamage, match="wrong checksum"):
            [*snapshot.pieces(0), *snapshot.pieces(1)]
    for damaged in (whole[:-1], whole + b"x"):
        path.write_bytes(damaged)
        with pytest.raises(JournalDamage, match="wrong checksum"):
            reader.open_snapshot(reader.snapshot())
    path.unlink()
    with pytest.raises(JournalDamage, match="cannot be read: No such file"):
        reader.open_snapshot(reader.snapshot())
    reader.close()


def test_rows_out_of_order_lead_nobody_back(tmp_path, monkeypatch):
    """Nor over others: each number comes once."""
    journal = open_small(tmp_path)
    stored = [record(at) for at in range(1, 9)]
    journal.append(stored)
    reader = JournalReader(tmp_path)
    query = reader._index._query

    def disordered(sql, values=()):
        rows = query(sql, values)
        return rows[::-1] + rows[:1] if "FROM records" in sql else rows

    monkeypatch.setattr(reader._index, "_query", disordered)
    assert list(reader.records(3, 7)) == stored[3:7]
    reader.close()


def test_reader_without_a_writer(tmp_path):
    """It reads what an owner left that has ended, and starts none itself."""
    with pytest.raises(JournalError, match="there is no journal: start the daemon"):
        JournalReader(tmp_path / "none")
    journal = open_small(tmp_path)
    journal.append([keyed(1, b"x")])
    journal.close()
    reader = JournalReader(tmp_path)
    assert list(reader.records(0)) == [keyed(1, b"x")]
    journal = open_small(tmp_path)  # a reader is no owner
    journal.append([keyed(2, b"y")])
    assert reader.refresh() == 2
    reader.close()


def _write(directory, seed: int, count: int, told) -> None:
    """Append groups, with snapshots and retention between them."""
    journal = open_small(directory, keep_bytes=200_000)
    told.recv()
    chance = random.Random(seed)
    for number, group in enumerate(groups(count, chance)):
        journal.append(group)
        journal.checkpoint()
        if number % 50 == 49:
            journal.put_snapshot(journal.head - 20, b"%d" % number, (b"s" * number,))
        journal.expire(0)
    told.send(journal.head)
    told.recv()
    journal.close()


@pytest.mark.whole
def test_reader_beside_a_writer(tmp_path):
    """Whatever it reads meanwhile is what was stored, without holes, or no longer kept."""
    told, other = SPAWN.Pipe()
    child = SPAWN.Process(target=_write, args=(tmp_path, 4, 400, other))
    child.start()
    wanted = [one for group in groups(400, random.Random(4)) for one in group]
    try:
        until(lambda: (tmp_path / "index.sqlite-wal").exists(), "the journal")
        until(lambda: _opens(tmp_path), "the tables")
        reader = JournalReader(tmp_path)
        told.send("go")
        at, read, snapshots = 0, 0, set()
        while at < len(wanted):
            reader.refresh()
            try:
                for one in reader.records(at):
                    assert one == wanted[one.at - 1]
                    assert one.at == at + 1
                    at, read = one.at, read + 1
            except JournalExpired as error:
                at = error.oldest - 1
            row = reader.snapshot()
            if row is not None and (snapshot := reader.open_snapshot(row)) is not None:
                number = int(row.meta)
                assert frames_of(snapshot) == [b"s" * number]
                snapshots.add(number)
            if not told.poll() and at > 0 and at % 7 == 0:
                at = max(0, at - 60)  # go back, so that retention is met
        assert told.recv() == len(wanted)
        assert read > 400
        assert snapshots
        told.send("end")
        child.join()
        assert child.exitcode == 0
    finally:
        child.kill()
        child.join()
    reader.close()


def _opens(directory) -> bool:
    try:
        JournalReader(directory).close()
    except JournalError:
        return False
    return True


@pytest.mark.whole
def test_reader_keeps_no_pages_alive(tmp_path):
    """The log of SQLite begins again at its start although somebody reads all the time."""
    journal = open_small(tmp_path)
    reader = JournalReader(tmp_path)
    journal.append([record(at, b"x") for at in range(1, 300)])
    reader.refresh()
    half_read = reader.records(0, 299)
    next(half_read)
    for at in range(300, 700):
        journal.append([record(at, b"x")])
        journal.checkpoint()
    assert (tmp_path / "index.sqlite-wal").stat().st_size < 100_000
    reader.close()
