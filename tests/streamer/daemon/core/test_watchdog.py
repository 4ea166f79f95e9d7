"""The watchdog: stages with work and without progress, against what a plain count says."""

from __future__ import annotations

import random

import pytest

from streamer.daemon.core.watchdog import StageLook, Watchdog

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
