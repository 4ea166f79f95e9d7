"""Cores that keep time: the log's commits and pace, the daemon's life, the watchdog."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.daemon.core.life import (
    DRAINING,
    ENDED,
    FAILED,
    FINAL,
    FULL,
    RUNNING,
    STARTING,
    Life,
)
from streamer.daemon.core.log import (
    LOOK_SECONDS,
    RETRY_SECONDS,
    SNAPSHOT_SECONDS,
    LogCore,
    Replay,
    Task,
)
from streamer.daemon.core.sync import Pace
from streamer.daemon.core.watchdog import StageLook, Watchdog

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


def test_nobody_rests_who_has_cores_to_spare():
    pace = Pace()
    for step in range(100):
        pace.committed(step / 10)
        assert pace.pause(step / 10, working=0.01, waiting=0.001) == 0


def test_where_cores_are_wanted_it_rests_more_and_more_up_to_a_bound():
    pace = Pace()
    pauses = []
    for step in range(10):
        pace.committed(step / 10)
        pauses.append(pace.pause(step / 10, working=0.004, waiting=0.1))
    assert pauses == sorted(pauses)
    assert 0 < pauses[0] < pauses[-1]
    # requests are answered in time, and a fifth of a core is left
    assert pauses[-1] == 4 * 0.004
    assert pace.pause(1.0, working=1.0, waiting=1.0) == 0.05


def test_it_does_not_rest_while_nothing_is_committed():
    pace = Pace()
    assert pace.pause(0.0, working=0.01, waiting=0.1) == 0
    pace.committed(1.0)
    assert pace.pause(1.1, working=0.01, waiting=0.1) > 0
    assert pace.pause(9.0, working=0.01, waiting=0.1) == 0


def test_it_goes_on_at_full_speed_once_cores_are_free():
    pace, chance = Pace(), random.Random(1)
    for _ in range(20):
        pace.committed(0.0)
        pace.pause(0.0, working=0.01, waiting=chance.uniform(0.01, 1))
    pauses = [pace.pause(0.1, working=0.01, waiting=0.0) for _ in range(20)]
    assert pauses[0] > 0
    assert pauses == sorted(pauses, reverse=True)
    assert pauses[-1] == 0


FOLLOWS = {
    STARTING: {RUNNING, FULL, DRAINING, FAILED},
    RUNNING: {FULL, DRAINING, FAILED},
    FULL: {RUNNING, DRAINING, FAILED},
    DRAINING: {ENDED, FAILED},
    ENDED: set(),
    FAILED: set(),
}

EVENTS = {
    "ready": lambda life: life.ready(),
    "full": lambda life: life.journal_full(True),
    "room": lambda life: life.journal_full(False),
    "limit": lambda life: life.at_limit(),
    "drain": lambda life: life.drain(),
    "drained": lambda life: life.drained(),
    "fail": lambda life: life.fail(),
}


def after(*events):
    entered = []
    life = Life(entered.append)
    for event in events:
        EVENTS[event](life)
    assert life.state == [STARTING, *entered][-1]
    return entered


@given(st.lists(st.sampled_from(sorted(EVENTS)), max_size=12))
def test_every_state_follows_one_it_may_follow(events):
    states = [STARTING, *after(*events)]
    for before, state in zip(states, states[1:], strict=False):
        assert state in FOLLOWS[before]
    if states[-1] in FINAL:
        assert after(*events, "ready", "full", "limit", "drain", "fail") == states[1:]


@pytest.mark.parametrize(
    ("events", "entered"),
    [
        (["ready", "drain", "drained"], [RUNNING, DRAINING, ENDED]),
        (["drained", "ready", "drained", "ready"], [RUNNING]),
        (["full", "ready", "room", "full", "room"], [FULL, RUNNING, FULL, RUNNING]),
        (["full", "room", "ready"], [RUNNING]),
        (["limit", "ready", "full", "room", "limit"], [FULL]),
        (["ready", "full", "limit", "room", "drain", "drained"], [RUNNING, FULL, DRAINING, ENDED]),
        (["ready", "full", "drain", "room", "drained"], [RUNNING, FULL, DRAINING, ENDED]),
        (["drain", "ready", "full", "fail", "fail"], [DRAINING, FAILED]),
    ],
)
def test_what_leads_where(events, entered):
    assert after(*events) == entered


def test_each_event_says_whether_it_changed_the_state():
    life = Life(lambda _: None)
    assert [life.ready(), life.ready()] == [True, False]
    assert [life.drained(), life.drain(), life.drain()] == [False, True, False]
    assert [life.drained(), life.fail()] == [True, False]


STEP = 0.5


class World:
    """Stages, a clock, and what the watchdog said of them, with the time."""

    def __init__(self, *names):
        self.stages = {name: StageLook(0, False, f"what {name} needs") for name in names}
        self.dog = Watchdog(10.0)
        self.now = 1000.0
        self.said = []

    def set(self, name, **fields):
        self.stages[name] = self.stages[name]._replace(**fields)

    def look(self, passed=STEP):
        self.now += passed
        new, freed = self.dog.look(self.stages, self.now)
        at = self.now - 1000
        self.said += [(at, "stuck", name, stage.waits_for) for name, stage in new.items()]
        self.said += [(at, "freed", name, stage.seconds) for name, stage in freed.items()]

    def pass_time(self, seconds):
        for _ in range(round(seconds / STEP)):
            self.look()


def test_a_stage_with_work_and_without_progress_is_named_once():
    world = World("journal")
    world.pass_time(100)
    world.set("journal", waiting=True)
    world.pass_time(9.5)
    assert world.said == []
    world.pass_time(60)
    assert world.said == [(110.0, "stuck", "journal", "what journal needs")]
    assert world.dog.stuck["journal"].seconds == world.dog.ages["journal"] == 69.5
    assert world.dog.stalls == {"journal": 1}


@pytest.mark.parametrize("change", [{"done": 1}, {"waiting": False}])
def test_its_recovery_is_reported_once_with_how_long_it_took(change):
    world = World("engine")
    world.set("engine", waiting=True)
    world.pass_time(15)
    world.set("engine", **change)
    world.pass_time(5)
    assert [kind for _, kind, *_ in world.said] == ["stuck", "freed"]
    assert world.said[1] == (15.5, "freed", "engine", 14.5)
    assert world.dog.stuck == {}


def test_work_that_goes_on_however_slowly_is_not_stuck():
    world = World("engine")
    world.set("engine", waiting=True)
    for done in range(20):
        world.set("engine", done=done)
        world.pass_time(9.5)
    assert world.said == []


def test_any_change_is_progress():
    world = World("tree")
    world.set("tree", done=100, waiting=True)
    world.pass_time(9)
    world.set("tree", done=3)  # another worker
    world.pass_time(9)
    assert world.said == []


def test_what_is_held_up_is_not_the_cause():
    world = World("engine", "journal")
    world.set("journal", waiting=True)
    world.set("engine", waiting=True, held_up=True)
    world.pass_time(60)
    assert [name for _, _, name, _ in world.said] == ["journal"]
    assert [*world.dog.stuck] == ["journal"]


def test_what_is_held_up_by_nothing_that_is_stuck_is_named():
    world = World("engine", "journal")
    world.set("engine", waiting=True, held_up=True)
    world.pass_time(60)
    assert [name for _, _, name, _ in world.said] == ["engine"]


def test_what_it_waits_for_may_change_while_it_is_stuck():
    world = World("sync")
    world.set("sync", waiting=True)
    world.pass_time(20)
    world.set("sync", waits_for="a process that sleeps")
    world.pass_time(1)
    assert world.dog.stuck["sync"].waits_for == "a process that sleeps"
    assert len(world.said) == 1


def test_the_time_in_which_the_whole_process_was_stopped_does_not_count():
    world = World("feed")
    world.set("feed", waiting=True)
    world.pass_time(2)
    world.look(3600.0)
    assert world.said == []
    world.set("feed", done=1)
    world.look()
    assert world.dog.ages == {"feed": 0.0}


@pytest.mark.parametrize("seed", range(20))
def test_against_a_plain_count(seed):
    """Of stages that do anything at random, what is named is what a plain definition names."""
    rng = random.Random(seed)
    names = ["engine", "journal", "feed"]
    world = World(*names)
    # of each, the looks in a row with work and the same count as in the look before
    still, before, named = dict.fromkeys(names, 0), dict.fromkeys(names, None), set()
    world.look()
    before = {name: world.stages[name].done for name in names}
    for _ in range(2000):
        for name in names:
            if rng.random() < 0.03:
                world.set(name, done=world.stages[name].done + 1)
            if rng.random() < 0.02:
                world.set(name, waiting=rng.random() < 0.8)
            if rng.random() < 0.02:
                world.set(name, held_up=rng.random() < 0.3)
        world.said.clear()
        world.look()
        for name in names:
            stage = world.stages[name]
            still[name] = still[name] + 1 if stage.waiting and stage.done == before[name] else 0
            before[name] = stage.done
        late = {name for name in names if still[name] * STEP >= 10}
        causes = {name for name in late if not world.stages[name].held_up} or late
        expected = (named & late) | causes
        assert set(world.dog.stuck) == expected
        assert {name for _, kind, name, _ in world.said if kind == "stuck"} == expected - named
        assert {name for _, kind, name, _ in world.said if kind == "freed"} == named - expected
        named = expected
