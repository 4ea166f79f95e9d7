"""Replay pauses while the daemon's own work needs the cores, and only then."""

from __future__ import annotations

import random

from streamer.daemon.core.sync import Pace


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
