"""Which subscriber is ended: the one that never drains its buffer, and only if memory is short."""

from __future__ import annotations

import random

import pytest

from streamer.daemon.core.backlog import Backlog

LIMIT = 1000


def backlog(*connections):
    made = Backlog(LIMIT)
    for connection in connections:
        made.add(connection)
    return made


def seen(found, queued, held, now):
    """The connection that is ended by a look, if there is one now."""
    if not found.wants_look(held, now):
        return None
    slow = found.look(queued, held, now)
    return slow and slow.connection


def test_the_one_that_does_not_drain_is_ended():
    found = backlog(1, 2)
    ended = []
    for step in range(100):
        now = step / 100
        # the second drains every other time
        queued = {1: 200, 2: 200 * (step % 2)}
        ended.append(seen(found, {c: q for c, q in queued.items() if c not in ended}, 1001, now))
    assert [connection for connection in ended if connection] == [1]
    # not at once: a burst may take a moment
    assert 0.2 < ended.index(1) / 100 < 0.4


def test_nobody_is_ended_while_there_is_room():
    found = backlog(1)
    assert not any(seen(found, {1: 200}, LIMIT, step / 10) for step in range(100))


def test_nobody_is_ended_who_keeps_up():
    found = backlog(1, 2)
    rng = random.Random(4)
    for step in range(1000):
        queued = {c: rng.choice([0, 3, 30, 150, 200]) for c in (1, 2)}
        assert seen(found, queued, 10 * LIMIT, step / 200) is None


@pytest.mark.parametrize("pause", [0.3, 1.0, 5.0])
def test_a_few_looks_long_after_each_other_end_nobody(pause):
    """The threads of the daemon may wait for a core; the subscriber may have read meanwhile."""
    found = backlog(1)
    assert seen(found, {1: 0}, 0, 0.0) is None
    ended = [seen(found, {1: 200 + step}, 5 * LIMIT, pause * step) for step in range(1, 9)]
    assert ended == [None] * 7 + [1]


def test_nobody_is_ended_for_bursts_that_are_read_before_the_next_one():
    """However large they are, and although every buffer is full right behind each."""
    found = backlog(1)
    for burst in range(200):
        now = burst * 0.05
        # the look before a burst finds next to nothing, so that it need not even be asked for
        assert seen(found, {1: 200}, LIMIT // 4, now) is None
        assert seen(found, {1: 200}, 50 * LIMIT, now + 0.01) is None


def test_who_has_stopped_is_ended_before_who_reads_slowly():
    """Whoever has been behind for longer: the one that has stopped keeps what it holds."""
    found = backlog(1, 2)
    rng = random.Random(3)
    ended = {}
    for step in range(400):
        now = step / 100
        # never drained: it is always far behind
        queued = {1: rng.randrange(150, 200), 2: 0 if now < 2 else 200}
        connection = seen(found, queued, LIMIT + (now > 2.5), now)
        if connection:
            ended[connection] = now
        if 2 in ended:
            break
    assert [*ended] == [2]
    assert 2.5 < ended[2] < 2.6


def test_of_those_that_read_the_one_that_is_behind_for_longest_is_ended():
    found = backlog(1, 2)
    rng = random.Random(5)
    for step in range(100):
        queued = {1: rng.randrange(150, 200), 2: rng.randrange(150, 200) if step > 10 else 0}
        slow = found.look(queued, LIMIT + 1, step / 100)
        if slow is not None:
            break
    assert (slow.connection, slow.looks) == (1, step + 1)
    assert slow.behind_seconds == pytest.approx(step / 100)
    assert slow.still_seconds < 0.1
    assert slow.queued == queued[1]


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
        # the first looks show what a full buffer is
        if step == 0:
            queued = dict.fromkeys(queued, 500)
        slow = seen(found, queued, LIMIT + 1 if now > 6 else LIMIT, now)
        if slow:
            ended[slow] = now
    assert list(ended) == sorted(stopped_at, key=stopped_at.__getitem__)
    times = list(ended.values())
    assert all(later - earlier >= 0.25 for earlier, later in zip(times, times[1:], strict=False))


def test_what_has_gone_is_forgotten():
    found = backlog(1, 2)
    assert found.look({2: 5}, 5000, 0.1) is None
    assert list(found.connections) == [2]
    found.add(1)  # it came again
    steps = [step / 50 for step in range(5, 25)]
    assert [c.connection for now in steps if (c := found.look({1: 9, 2: 0}, 5000, now))] == [1]
    assert list(found.connections) == [2, 1]
    assert found.look({2: 0}, 5000, 8.0) is None
    assert list(found.connections) == [2]
    assert found.look({}, 5000, 9.0) is None


def test_looks_are_rare_unless_much_waits():
    found = backlog(1)
    assert found.wants_look(0, 0.0)
    found.look({1: 0}, 0, 0.0)
    assert not found.wants_look(LIMIT // 4, 0.9)
    assert found.wants_look(0, 1.0)
    assert found.wants_look(LIMIT // 4 + 1, 0.006)
    assert not found.wants_look(LIMIT, 0.004)
