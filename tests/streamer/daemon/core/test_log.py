"""The state machine of the log against a plain list of what must be committed, and when."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.daemon.core.log import (
    LOOK_SECONDS,
    RETRY_SECONDS,
    SNAPSHOT_SECONDS,
    LogCore,
    Replay,
    Task,
)

MEGABYTE = 1 << 20
AFTER = Replay(bytes=100 * MEGABYTE, kmers=1000, records=90)


def log(replayed: Replay = Replay()) -> LogCore[str, str]:
    """A log whose groups are words: a record a letter, with a megabyte and a k-mer each."""
    core = LogCore(
        lambda word: ([*word], Replay(MEGABYTE * len(word), len(word), len(word))), replayed, AFTER
    )
    core.expired(0, now=0.0)
    return core


def test_what_waits_is_committed_together():
    core = log()
    core.add(["ab", "c"])
    core.add(["d"])
    assert core.task(0.1) is Task.APPEND
    assert core.records() == ["a", "b", "c", "d"]
    assert core.appended() == ["ab", "c", "d"]
    assert core.task(0.1) is None


def test_a_commit_has_a_limit_but_one_group_at_least():
    core = log()
    core.add(["x" * 40, "y" * 20, "z" * 20, "u"])
    committed = []
    while core.task(0.1) is Task.APPEND:
        core.records()
        committed.append(core.appended())
    assert committed == [["x" * 40], ["y" * 20, "z" * 20], ["u"]]


def test_what_comes_during_a_commit_waits_for_the_next_one():
    core = log()
    core.add(["a"])
    assert core.records() == ["a"]
    core.add(["b"])
    assert core.records() == ["a"]
    assert core.appended() == ["a"]
    assert core.records() == ["b"]


def test_a_full_disk_is_said_once_and_tried_again():
    core = log()
    core.add(["a"])
    assert core.no_room(now=5.0)
    assert core.full
    # first what may go
    assert core.task(5.0) is Task.EXPIRE
    core.expired(3, now=5.0)
    assert core.task(5.1) is None
    assert core.wait(5.1, most=9.0) == pytest.approx(RETRY_SECONDS - 0.1)
    assert core.task(5.0 + RETRY_SECONDS) is Task.APPEND
    assert core.records() == ["a"]
    assert not core.no_room(now=6.0)
    core.expired(0, now=6.0)
    assert core.task(6.0 + RETRY_SECONDS) is Task.APPEND
    assert core.appended() == ["a"]
    assert not core.full


@pytest.mark.parametrize("room", [1, 2, 3, 7])
def test_what_does_not_fit_is_split(room):
    """Down to single records; a group is passed on once all of its records are stored."""
    core = LogCore(lambda group: (group.split(), Replay(records=2)), Replay())
    core.add(["a b c d e", "f", "g h"])
    stored, published, tries = [], [], 0
    while core.waiting:
        tries += 1
        if len(core.records()) > room:
            core.no_room(float(tries))
            continue
        stored += core.records()
        published += core.appended()
        assert [word for group in published for word in group.split()] <= stored
    assert stored == [*"abcdefgh"]
    assert published == ["a b c d e", "f", "g h"]
    assert core._replayed == Replay(records=6)
    assert tries < 14


@pytest.mark.parametrize(
    "much", [Replay(bytes=101 * MEGABYTE), Replay(kmers=1001), Replay(records=91)]
)
def test_a_snapshot_is_due_after_much_of_anything(much):
    core = log(much)
    assert core.task(0.1) is Task.SNAPSHOT
    core.snapshot_tried(1.0, stored=False)
    assert core.task(2.0) is Task.EXPIRE
    assert core.task(1.0 + SNAPSHOT_SECONDS) is Task.SNAPSHOT
    core.snapshot_tried(11.0, stored=True)
    core.expired(0, now=90.0)
    assert core.task(90.5) is None
    core.add(["x" * 91])
    assert core.task(90.5) is Task.APPEND
    core.records()
    core.appended()
    assert core.task(90.5) is Task.SNAPSHOT


def test_what_is_appended_beside_a_snapshot_counts_for_the_next():
    core = log(Replay(records=91))
    assert core.task(0.1) is Task.SNAPSHOT
    core.snapshot_begun()
    core.expired(0, now=0.1)
    core.add(["x" * 91])
    assert core.task(0.2) is Task.APPEND
    core.records()
    core.appended()
    assert core.task(50.0) is not Task.SNAPSHOT
    core.snapshot_tried(50.0, stored=True)
    assert core.task(50.0 + SNAPSHOT_SECONDS) is Task.SNAPSHOT


def test_no_snapshot_where_there_is_no_room():
    core = log(Replay(records=91))
    core.add(["a"])
    core.no_room(now=1.0)
    core.expired(0, now=1.0)
    assert core.task(1.1) is None


def test_appends_and_housekeeping_take_turns():
    """Neither a disk that is always behind nor many records that may go keep the other waiting."""
    core = log()
    done = []
    for _ in range(6):
        core.add(["a"])
        done.append(core.task(LOOK_SECONDS))
        if done[-1] is Task.APPEND:
            core.records()
            core.appended()
        else:
            core.expired(1024, now=LOOK_SECONDS)
    assert done == [Task.APPEND, Task.EXPIRE] * 3


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.text("abc", max_size=40)),
            st.tuples(st.just("work"), st.booleans()),
            st.tuples(st.just("wait"), st.floats(0.0, 3.0)),
        )
    )
)
def test_everything_is_committed_once_in_order(steps):
    """Records are appended in order, each once, and groups are said when all of theirs are."""
    core = log()
    now, added, stored, said = 0.0, [], "", []
    for step, value in [*steps, ("wait", 5.0), *[("work", True)] * 200]:
        if step == "add":
            core.add([value])
            added.append(value)
        elif step == "wait":
            now += value
        elif (task := core.task(now)) is Task.APPEND:
            records = core.records()
            if value:
                stored += "".join(records)
                said += core.appended()
                whole = "".join(said)
                assert stored.startswith(whole)
                if len(said) < len(added):
                    assert len(stored) < len(whole + added[len(said)]) or not added[len(said)]
            else:
                core.no_room(now)
        elif task is Task.EXPIRE:
            core.expired(0, now)
        elif task is Task.SNAPSHOT:
            core.snapshot_tried(now, stored=value)
        assert core.full or core.task(now + 20.0) is not None
    assert said == added
    assert not core.full
