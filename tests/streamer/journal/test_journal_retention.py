"""What is let go, in which order, and what never is."""

from __future__ import annotations

import random
from contextlib import closing

import pytest

from streamer.journal.record import JournalExpired, Key
from tests.streamer.journal.kit import assert_holds, groups, keyed, open_small, record, verify

HOUR = 3600 * 10**9


def expire_all(journal, now: int) -> int:
    """Expire until there is nothing more; returns how many went."""
    total = 0
    while gone := journal.expire(now):
        total += gone
    return total


def data_files(directory) -> list[str]:
    return sorted(path.name for path in directory.glob("records-*"))


def test_a_file_that_vanishes_while_files_are_counted(tmp_path):
    """As a snapshot does when the next one takes its place in another thread."""
    with closing(open_small(tmp_path)) as journal:
        journal.append([record(1, b"x" * 1000)])
        used = journal.usage().disk
        (tmp_path / "snapshot-00000001").symlink_to(tmp_path / "gone")
        assert journal.usage().disk == used > 0


def test_retention_by_bytes(tmp_path):
    """The oldest records go until the rest fits, and with them files that hold nothing else."""
    journal = open_small(tmp_path, keep_bytes=100_000)
    stored = [keyed(at, b"x" * 20_000) for at in range(1, 21)]
    for one in stored:
        journal.append([one])
    assert expire_all(journal, 0) == 0  # without a snapshot recovery needs all
    journal.put_snapshot(20, b"", ())
    assert expire_all(journal, 0) == 16
    assert_holds(journal, stored, oldest=17)
    assert data_files(tmp_path) == ["records-00000006", "records-00000007"]
    assert verify(journal) == []
    journal.close()
    journal = open_small(tmp_path, keep_bytes=100_000)
    assert_holds(journal, stored, oldest=17)


def test_retention_by_hours(tmp_path):
    """Age counts, in order: a young record keeps the older ones behind it."""
    journal = open_small(tmp_path, keep_hours=2)
    hours = [1, 2, 9, 3, 4, 5]
    stored = [record(at, b"x", time=hour * HOUR) for at, hour in enumerate(hours, 1)]
    journal.append(stored)
    journal.put_snapshot(6, b"", ())
    for now, oldest in [(3, 1), (3.5, 2), (11, 3), (11.1, 7)]:
        expire_all(journal, int(now * HOUR))
        assert_holds(journal, stored, oldest)


def test_retention_keeps_what_recovery_needs(tmp_path):
    """Records after the snapshot stay, however small the limit."""
    journal = open_small(tmp_path, keep_bytes=1, keep_hours=1)
    stored = [record(at, b"x" * 30_000) for at in range(1, 11)]
    journal.append(stored)
    journal.put_snapshot(4, b"", ())
    assert expire_all(journal, 1 << 62) == 4
    assert_holds(journal, stored, oldest=5)
    journal.put_snapshot(10, b"", ())
    assert expire_all(journal, 1 << 62) == 6
    assert_holds(journal, stored, oldest=11)
    journal.append([record(11, b"y")])
    assert [one.at for one in journal.records(10)] == [11]


def test_retention_keeps_producers(tmp_path):
    """Marks and numbers received go on when all records have gone, over restarts."""
    journal = open_small(tmp_path, keep_bytes=1)
    stored = [keyed(at, b"x" * 100, producer=f"p{at % 3}") for at in range(1, 10)]
    journal.append(stored)
    journal.put_snapshot(9, b"", ())
    expire_all(journal, 0)
    assert_holds(journal, stored, oldest=10)
    journal.close()
    journal = open_small(tmp_path, keep_bytes=1)
    assert_holds(journal, stored, oldest=10)
    assert journal.content("p1", 1, 7) is None
    with pytest.raises(ValueError, match="record 10"):
        journal.append([record(10, key=Key("p0", 1, 9, 0, b""))])


def test_retention_without_limits(tmp_path):
    journal = open_small(tmp_path)
    journal.append([record(1, b"x")])
    journal.put_snapshot(1, b"", ())
    assert journal.expire(1 << 62) == 0


def test_retention_asked_for_what_has_gone(tmp_path):
    """Also when it goes while somebody reads."""
    journal = open_small(tmp_path, keep_bytes=1)
    journal.append([record(at, b"x" * 50_000) for at in range(1, 31)])
    journal.put_snapshot(30, b"", ())
    reading = journal.records(0)
    assert next(reading).at == 1
    expire_all(journal, 0)
    with pytest.raises(JournalExpired, match="no longer kept: begin with 31") as error:
        list(reading)
    assert error.value.oldest == 31
    with pytest.raises(JournalExpired):
        list(journal.records(29))
    assert list(journal.records(30)) == []


def test_retention_at_random(tmp_path):
    """Appends, snapshots, expiry and restarts in any order: always a suffix, never too much."""
    chance = random.Random(3)
    stored, snapshot = [], 0
    limit = 20_000
    journal = open_small(tmp_path, keep_bytes=limit)
    for _ in range(300):
        match chance.randrange(6):
            case 0 if stored:
                snapshot = chance.randrange(snapshot, len(stored) + 1)
                journal.put_snapshot(snapshot, b"", (b"s" * snapshot,))
            case 1:
                expire_all(journal, 0)
                usage = journal.usage()
                assert usage.bytes <= limit or usage.oldest == snapshot + 1
            case 2:
                journal.close()
                journal = open_small(tmp_path, keep_bytes=limit)
            case _:
                (group,) = groups(1, chance, len(stored) + 1)
                journal.append(group)
                stored += group
    assert journal.oldest > 100
    assert_holds(journal, stored, journal.oldest)
    assert verify(journal) == []
    assert len(data_files(tmp_path)) <= 3
