"""Another process reads while the owner writes."""

from __future__ import annotations

import multiprocessing
import random

import pytest

from streamer.journal.errors import JournalError, JournalExpired
from streamer.journal.reader import JournalReader
from tests.streamer.journal.kit import groups, keyed, open_small, record
from tests.waiting import until

SPAWN = multiprocessing.get_context("spawn")


def test_reader_sees_what_was_committed(tmp_path):
    journal = open_small(tmp_path)
    reader = JournalReader.open(tmp_path)
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
    assert reader.snapshot() == (2, b"m", (b"s",))
    journal.close()
    journal = open_small(tmp_path, keep_bytes=1)
    journal.expire(0)
    assert list(reader.records(2)) == []
    with pytest.raises(JournalExpired, match="begin with 3"):
        list(reader.records(0))
    reader.refresh()
    assert (reader.epoch, reader.oldest, reader.head) == (2, 3, 2)
    reader.close()
    journal.close()


def test_reader_without_a_writer(tmp_path):
    """It reads what an owner left that has ended, and starts none itself."""
    with pytest.raises(JournalError, match="there is no journal: start the daemon"):
        JournalReader.open(tmp_path / "none")
    journal = open_small(tmp_path)
    journal.append([keyed(1, b"x")])
    journal.close()
    reader = JournalReader.open(tmp_path)
    assert list(reader.records(0)) == [keyed(1, b"x")]
    journal = open_small(tmp_path)  # a reader is no owner
    journal.append([keyed(2, b"y")])
    assert reader.refresh() == 2
    reader.close()
    journal.close()


def _write(directory, seed: int, count: int, told) -> None:
    """Append groups, with snapshots and retention between them."""
    journal = open_small(directory, keep_bytes=200_000)
    told.recv()
    chance = random.Random(seed)
    for number, group in enumerate(groups(count, chance)):
        journal.append(group)
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
        reader = JournalReader.open(tmp_path)
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
            if (snapshot := reader.snapshot()) is not None:
                number = int(snapshot.meta)
                assert snapshot.frames == (b"s" * number,)
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
        JournalReader.open(directory).close()
    except JournalError:
        return False
    return True


@pytest.mark.whole
def test_reader_keeps_no_pages_alive(tmp_path):
    """The log of SQLite begins again at its start although somebody reads all the time."""
    journal = open_small(tmp_path)
    reader = JournalReader.open(tmp_path)
    journal.append([record(at, b"x") for at in range(1, 300)])
    reader.refresh()
    half_read = reader.records(0, 299)
    next(half_read)
    for at in range(300, 700):
        journal.append([record(at, b"x")])
    assert (tmp_path / "index.sqlite-wal").stat().st_size < 100_000
    reader.close()
    journal.close()
