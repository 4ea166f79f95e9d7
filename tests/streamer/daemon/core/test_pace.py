"""Replay rests while the daemon's own work needs the cores, and only then."""

from __future__ import annotations

import random

from streamer.daemon.core.pace import Pace


def test_nobody_rests_who_has_cores_to_spare():
    pace = Pace()
    for step in range(100):
        pace.committed(step / 10)
        assert pace.rest(step / 10, worked=0.01, waited=0.001) == 0


def test_where_cores_are_wanted_it_rests_more_and_more_up_to_a_bound():
    pace = Pace()
    rests = []
    for step in range(10):
        pace.committed(step / 10)
        rests.append(pace.rest(step / 10, worked=0.004, waited=0.1))
    assert rests == sorted(rests)
    assert 0 < rests[0] < rests[-1]
    # requests are answered in time, and a fifth of a core is left
    assert rests[-1] == 4 * 0.004
    assert pace.rest(1.0, worked=1.0, waited=1.0) == 0.05


def test_it_does_not_rest_while_nothing_is_committed():
    pace = Pace()
    assert pace.rest(0.0, worked=0.01, waited=0.1) == 0
    pace.committed(1.0)
    assert pace.rest(1.1, worked=0.01, waited=0.1) > 0
    assert pace.rest(9.0, worked=0.01, waited=0.1) == 0


def test_it_goes_on_at_full_speed_once_cores_are_free():
    pace, chance = Pace(), random.Random(1)
    for _ in range(20):
        pace.committed(0.0)
        pace.rest(0.0, worked=0.01, waited=chance.uniform(0.01, 1))
    rests = [pace.rest(0.1, worked=0.01, waited=0.0) for _ in range(20)]
    assert rests[0] > 0
    assert rests == sorted(rests, reverse=True)
    assert rests[-1] == 0
