"""Which subscriber is ended: the one that never drains its buffer, and only if memory is short."""

from __future__ import annotations

import random

import pytest

from streamer.daemon.core.backlog import Backlog

LIMIT = 1000


def backlog(*connections, now=0.0):
    made = Backlog(LIMIT)
    for connection in connections:
        made.add(connection, now)
    return made


def test_the_one_that_does_not_drain_is_ended():
    found = backlog(1, 2)
    ended = []
    for step in range(100):
        now = step / 100
        # the second drains every other time
        queued = {1: 200, 2: 200 * (step % 2)}
        ended.append(found.sample({c: q for c, q in queued.items() if c not in ended}, 1001, now))
    assert [connection for connection in ended if connection] == [1]
    # not at once: a burst may take a moment
    assert 0.2 < ended.index(1) / 100 < 0.4


def test_nobody_is_ended_while_there_is_room():
    found = backlog(1)
    assert not any(found.sample({1: 200}, LIMIT, step / 10) for step in range(100))


def test_nobody_is_ended_who_keeps_up():
    found = backlog(1, 2)
    rng = random.Random(4)
    for step in range(1000):
        queued = {c: rng.choice([0, 3, 30, 150, 200]) for c in (1, 2)}
        assert found.sample(queued, 10 * LIMIT, step / 200) is None


@pytest.mark.parametrize("seed", range(5))
def test_one_after_the_other_the_slowest_first(seed):
    """Memory is freed only some time after an end."""
    rng = random.Random(seed)
    stopped_at = {c: rng.uniform(0, 5) for c in range(1, 9)}
    found = backlog(*stopped_at)
    ended = {}
    for step in range(2000):
        now = step / 200
        there = [c for c in stopped_at if c not in ended]
        queued = {c: 0 if now < stopped_at[c] else 500 for c in there}
        # the first samples show what a full buffer is
        if step == 0:
            queued = dict.fromkeys(queued, 500)
        slow = found.sample(queued, LIMIT + 1 if now > 6 else 0, now)
        if slow:
            ended[slow] = now
    assert list(ended) == sorted(stopped_at, key=stopped_at.__getitem__)
    times = list(ended.values())
    assert all(later - earlier >= 0.25 for earlier, later in zip(times, times[1:], strict=False))


def test_what_has_gone_is_forgotten():
    found = backlog(1, 2)
    assert found.sample({2: 5}, 5000, 0.1) is None
    assert list(found.connections) == [2]
    found.add(1, 0.2)  # it came again
    assert found.sample({1: 9, 2: 0}, 5000, 0.4) is None
    assert found.sample({1: 9, 2: 0}, 5000, 0.5) == 1
    assert list(found.connections) == [2]
    assert found.sample({}, 5000, 9.0) is None


def test_samples_are_rare_unless_much_waits():
    found = backlog(1)
    assert found.wants_sample(0, 0.0)
    found.sample({1: 0}, 0, 0.0)
    assert not found.wants_sample(LIMIT // 4, 0.9)
    assert found.wants_sample(0, 1.0)
    assert found.wants_sample(LIMIT // 4 + 1, 0.006)
    assert not found.wants_sample(LIMIT, 0.004)
