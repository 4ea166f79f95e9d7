"""Epochs of producers outlive a kill, and names go once nothing is kept of them."""

from __future__ import annotations

import random

import pytest

from streamer.journal.record import Begun, Key
from tests.streamer.journal.kit import keyed, open_small, record, verify


def rows(journal):
    return sorted(tuple(row) for row in journal.producers())


def test_an_epoch_that_has_begun_is_stored(tmp_path):
    journal = open_small(tmp_path)
    journal.append([Begun("new", 5, 11)])
    journal.append([keyed(1, b"x"), Begun("p", 2, 22), record(2), Begun("p", 3, 33)])
    assert journal.head == 2
    want = [("new", 5, 0, b"", 11), ("p", 3, 0, b"mark 1", 33)]
    assert rows(journal) == want
    journal._failure = "killed"
    journal.close()
    journal = open_small(tmp_path)
    assert rows(journal) == want
    assert verify(journal) == []
    for entry in (
        Begun("p", 3, 44),
        Begun("p", 2, 44),
        record(3, key=Key("p", 2, 9, 0, b"")),
        record(3, key=Key("p", 3, 0, 0, b"")),
    ):
        with pytest.raises(ValueError, match=r"'p', .* after"):
            journal.append([entry])
    journal.append([record(3, key=Key("p", 3, 1, 0, b""), time=55)])
    assert rows(journal) == [want[0], ("p", 3, 1, b"", 55)]


def test_a_name_is_forgotten_once_no_record_of_it_is_kept(tmp_path):
    journal = open_small(tmp_path, keep_bytes=1)
    for at in range(1, 21):
        journal.append([keyed(at, b"x" * 900, producer=f"p{at % 4}")])
    journal.append([Begun("idle", 1, 5)])
    names = ["p0", "p1", "p2", "p3", "idle", "nobody"]
    assert journal.forget(names) == ["idle"]
    journal.put_snapshot(18, b"", ())
    while journal.expire(0):
        pass
    # 19 and 20 are kept
    assert sorted(journal.forget(names)) == ["p1", "p2"]
    assert journal.forget(names) == []
    left = rows(journal)
    assert [row[0] for row in left] == ["p0", "p3"]
    assert verify(journal) == []
    journal.close()
    journal = open_small(tmp_path)
    assert rows(journal) == left
    # it comes back like any other
    journal.append([Begun("idle", 1, 7), record(21, key=Key("p1", 1, 1, 3, b"m"), time=8)])
    assert rows(journal) == [("idle", 1, 0, b"", 7), *left[:1], ("p1", 1, 1, b"m", 8), *left[1:]]
    assert journal.content("p1", 1, 1) == 3
    assert verify(journal) == []


def test_many_names_come_and_go(tmp_path):
    """Against a plain picture, over restarts."""
    chance = random.Random(5)
    journal = open_small(tmp_path)
    known: dict[str, tuple[int, int, bytes, int]] = {}
    for turn in range(60):
        begun = [
            Begun(name, known.get(name, (0,))[0] + 1, chance.randrange(100))
            for name in {f"n{chance.randrange(30)}" for _ in range(chance.randrange(6))}
        ]
        journal.append(begun)
        known |= {one.producer: (one.epoch, 0, b"", one.time) for one in begun}
        asked = [f"n{chance.randrange(30)}" for _ in range(chance.randrange(4))]
        assert sorted(journal.forget(asked)) == sorted({*asked} & known.keys())
        for name in asked:
            known.pop(name, None)
        if turn % 7 == 0:
            journal.close()
            journal = open_small(tmp_path)
        assert rows(journal) == sorted((name, *row) for name, row in known.items())
    assert verify(journal) == []
