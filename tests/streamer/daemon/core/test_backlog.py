"""Which subscribers are ended if memory is short: those that have not drained for longest."""

from __future__ import annotations

import random

import pytest

from streamer.daemon.core.backlog import Backlog

LIMIT = 1600
# what the kernel holds of a connection at most
FULL = 200


def backlog(*connections):
    made = Backlog(LIMIT)
    for connection in connections:
        made.add(connection, 0, 0.0)
    # shows what a full buffer is
    made.look(dict.fromkeys(connections, FULL), 0, 0.0)
    made.look(dict.fromkeys(connections, 0), 0, 0.0)
    return made


def test_nobody_is_ended_who_has_drained():
    found = backlog(1, 2)
    found.look({1: FULL // 4, 2: 0}, 10 * LIMIT, 5.0)
    assert found.slowest(0.0, 5.0) == []


def test_who_has_stopped_is_ended_at_once():
    found = backlog(1, 2)
    found.look({1: FULL, 2: FULL}, 100, 1.0)
    found.look({1: FULL, 2: FULL - 10}, LIMIT, 1.2)
    assert found.slowest(1.2, 1.2) == [1]
    # the other one reads, and has a moment
    assert found.slowest(1.2, 1.2) == []
    assert found.slowest(1.2, 1.4) == [2]
    assert found.slowest(1.2, 9.0) == []


def test_who_reads_has_a_moment_to_drain():
    found = backlog(1)
    found.look({1: FULL}, 10 * LIMIT, 0.001)
    assert found.slowest(0.001, 0.05) == []
    found.look({1: FULL - 50}, 10 * LIMIT, 0.09)
    assert found.slowest(0.001, 0.09) == []
    found.look({1: 0}, 10 * LIMIT, 0.12)
    assert found.slowest(0.001, 0.12) == []


@pytest.mark.parametrize("count", [2, 40, 1000])
def test_all_that_stopped_together_are_ended_together(count):
    """What they hold is the same memory, and a thousand of them take no longer than one."""
    found = backlog(*range(count), count)
    found.look(dict.fromkeys(range(count), FULL) | {count: 0}, LIMIT, 1.0)
    found.look(dict.fromkeys(range(count), FULL) | {count: 0}, 2 * LIMIT, 2.0)
    assert found.slowest(2.0, 2.0) == [*range(count)]
    assert list(found.connections) == [count]


@pytest.mark.parametrize("seed", range(5))
def test_one_after_the_other_the_slowest_first(seed):
    rng = random.Random(seed)
    stopped_at = {c: c * LIMIT // 4 for c in rng.sample(range(1, 100), 8)}
    found = backlog(*stopped_at)
    end = 30 * LIMIT
    for sent in range(0, end, LIMIT // 16):
        queued = {c: 0 if sent < at else FULL for c, at in stopped_at.items()}
        found.look(queued, sent, sent / LIMIT)
    ended = []
    while slow := found.slowest(end / LIMIT, end / LIMIT):
        ended += slow
    assert ended == sorted(stopped_at, key=stopped_at.__getitem__)


def test_who_has_stopped_is_ended_before_who_reads_slowly():
    """Whoever has been behind for longer: the one that has stopped keeps what it holds."""
    found = backlog(1, 2)
    rng = random.Random(3)
    for step in range(400):
        queued = {1: rng.randrange(150, 200), 2: 0 if step < 200 else FULL}
        found.look(queued, step * 100, step / 100)
    assert found.slowest(4.0, 4.0) == [2]


def test_of_those_that_read_the_one_that_is_behind_for_longest_is_ended():
    found = backlog(1, 2)
    rng = random.Random(5)
    for step in range(100):
        queued = {1: rng.randrange(150, 200), 2: rng.randrange(150, 200) if step > 10 else 0}
        found.look(queued, step * LIMIT, step / 100)
    assert found.slowest(0.9, 0.99) == []
    assert found.slowest(0.8, 0.99) == [1]


def test_what_has_gone_is_forgotten():
    found = backlog(1, 2)
    found.look({2: FULL}, LIMIT, 0.1)
    assert list(found.connections) == [2]
    found.add(1, LIMIT, 0.1)  # it came again
    found.add(2, LIMIT, 0.1)  # it was there
    found.look({1: 5, 2: FULL}, 2 * LIMIT, 0.2)
    assert found.slowest(0.0, 0.3) == [2]
    found.look({}, 2 * LIMIT, 0.3)
    assert not list(found.connections)


def test_looks_are_rare_unless_much_waits_and_is_sent():
    found = backlog(1)
    little, much, some = LIMIT // 4, LIMIT // 4 + 1, LIMIT // 64
    assert not found.wants_look(little, some, 0.9)
    assert found.wants_look(0, 0, 1.0)
    assert found.wants_look(much, some, 0.006)
    assert not found.wants_look(much, some - 1, 0.006)
    assert not found.wants_look(much, some, 0.004)
