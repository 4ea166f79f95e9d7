"""When workers of a shard may start, and when the shard is given up. Times are made up."""

from __future__ import annotations

import pytest

from streamer.cluster.cluster_tasks import RETRIES
from streamer.cluster.worker_team import LONGEST_PAUSE, START_SECONDS, ShardStarts


@pytest.fixture
def starts():
    return ShardStarts(1000.0)


def late(seconds):
    return 1000.0 + START_SECONDS + seconds


def test_without_a_sign_of_life_it_is_given_up_after_a_while(starts):
    assert not starts.given_up(late(0))
    assert starts.given_up(late(1))
    assert starts.reason().startswith("none has started for 60 s")


def test_a_sign_of_life_is_waited_for_without_end(starts):
    for second in range(10_000):
        starts.alive(1000.0 + second)
        assert not starts.given_up(1000.0 + second)
    assert not starts.given_up(11_000.0)
    assert starts.given_up(11_000.0 + START_SECONDS)


def test_once_given_up_it_stays_so_until_one_works(starts):
    assert starts.given_up(late(1))
    starts.alive(late(2))
    assert starts.given_up(late(2))
    starts.working(late(3))
    assert not starts.given_up(late(3))


def test_it_says_once_that_it_waits_long(starts):
    starts.alive(late(0))
    assert [starts.is_late(late(at)) for at in (0, 1, 2)] == [False, True, False]


def test_killed_starts_are_tried_again_at_once_and_are_no_end(starts):
    for kill in range(RETRIES):
        now = 1000.0 + 20 * kill
        starts.failed(now, "died", raised=False)
        assert starts.may_start(now, works=False), kill
        assert not starts.given_up(now), kill


def test_starts_that_always_die_pause_and_are_given_up(starts):
    for _ in range(RETRIES + 1):
        starts.failed(1010.0, "died (of hunger)", raised=False)
    assert not starts.may_start(1011.9, works=False)
    assert starts.may_start(1012.0, works=False)
    starts.alive(late(0))
    assert not starts.given_up(late(0))
    assert starts.given_up(late(1))
    assert starts.reason() == "8 have failed while starting; the last one died (of hunger)"


@pytest.mark.parametrize(("works", "raised"), [(True, False), (False, True), (True, True)])
def test_others_pause_longer_and_longer(works, raised, starts):
    now, pauses = 1000.0, []
    for _ in range(7):
        starts.failed(now, "failed", raised=raised)
        first = next(more for more in range(100) if starts.may_start(now + more / 2, works=works))
        pauses.append(first / 2)
        now += first / 2
    assert pauses == [2, 4, 8, 16, LONGEST_PAUSE, LONGEST_PAUSE, LONGEST_PAUSE]
    starts.started()
    assert starts.may_start(now, works=works)


def test_one_that_raises_was_no_life(starts):
    starts.alive(late(0))
    starts.failed(late(1), "failed (wrong version)", raised=True)
    assert starts.given_up(late(1))
    assert starts.reason() == "one has failed while starting; the last one failed (wrong version)"


def test_one_worker_that_starts_makes_good_for_all_that_failed(starts):
    for _ in range(RETRIES + 1):
        starts.failed(1001.0, "died", raised=False)
    starts.started()
    starts.working(1002.0)
    starts.failed(1003.0, "died", raised=False)
    assert starts.may_start(1003.0, works=False)
    assert not starts.given_up(1003.0 + START_SECONDS)


def test_while_the_caller_is_busy_no_silence_counts(starts):
    starts.delayed(100.0)
    assert not starts.given_up(late(99))
    assert starts.given_up(late(101))
