"""Workers killed, stopped or slow while they start: others take their places. No Ray is needed."""

from __future__ import annotations

import pytest

from streamer.cluster import worker_team
from streamer.cluster.cluster_tasks import RETRIES
from streamer.errors import StreamerError
from tests.streamer.cluster.faulty_workers import Faults, batches, matchers
from tests.streamer.cluster.test_cluster_stream import assert_equal

pytestmark = pytest.mark.usefixtures("short_waits")
DAEMON = "the cluster has no workers ("


@pytest.mark.parametrize("shards", [1, 2])
def test_those_killed_while_they_start_make_no_other_wait(shards, fault_targets, monkeypatch):
    monkeypatch.setattr(worker_team, "LONGEST_PAUSE", 30.0)
    faults = Faults()
    faults.dying = RETRIES
    here, there, _, said = matchers("grow", fault_targets, shards, faults)
    for batch in batches(3):
        assert_equal(here.match(batch), there.match(batch))
    assert faults.dying == 0
    assert said == ["a worker of the cluster died (killed): one that was starting"] * RETRIES


@pytest.mark.parametrize("shards", [1, 2])
def test_one_that_is_alive_is_waited_for(shards, fault_targets):
    faults = Faults()
    faults.starts, faults.alive = False, True
    here, there, _, said = matchers("frozen", fault_targets, shards, faults)
    said_before = there._engine._team._say

    def say(line):
        said_before(line)
        faults.starts = True

    there._engine._team._say = say
    for batch in batches(3):
        assert_equal(here.match(batch), there.match(batch))
    assert said == ["workers of the cluster take long to start; waiting for them"]
    assert faults.made == 2 * shards


def test_one_that_stops_while_it_starts_is_noticed(fault_targets, monkeypatch):
    monkeypatch.setattr(worker_team, "START_SECONDS", 60.0)
    monkeypatch.setattr(worker_team, "HANG_SECONDS", 0.2)
    faults = Faults()
    faults.stopping = 4
    here, there, _, said = matchers("frozen", fault_targets, 2, faults)
    for batch in batches(2):
        assert_equal(here.match(batch), there.match(batch))
    assert faults.made > 4
    assert "a worker of the cluster has not answered for 0.2 s: one that was starting" in said


def test_if_all_die_while_they_start_the_daemon_matches(fault_targets):
    faults = Faults()
    faults.dying = 1 << 60
    here, there, _, said = matchers("grow", fault_targets, 1, faults)
    some = list(batches(3))
    for batch in some[:2]:
        assert_equal(here.match(batch), there.match(batch))
    assert sum(line.startswith(DAEMON) for line in said) == 1
    faults.dying = 0
    while not there._engine._team._covered():
        there._engine._team._step([])
    assert_equal(here.match(some[2]), there.match(some[2]))
    assert said[-1] == "workers of the cluster match"


def test_if_all_of_a_shard_die_while_they_start_it_is_one_line(fault_targets):
    faults = Faults()
    faults.dying = 1 << 60
    _, there, _, _ = matchers("grow", fault_targets, 2, faults)
    with pytest.raises(
        StreamerError,
        match=r"^a shard of the dictionary has no worker \(\d+ have failed while starting; the "
        r"last one died \(killed\)\)$",
    ):
        there.match(next(batches(1)))


def test_those_that_raise_an_error_wait_before_the_next_try(fault_targets, monkeypatch):
    monkeypatch.setattr(worker_team, "LONGEST_PAUSE", 30.0)
    faults = Faults()
    faults.raising = "a worker has version 0.0"
    _, there, _, _ = matchers("frozen", fault_targets, 2, faults)
    with pytest.raises(
        StreamerError, match=r"failed \(StreamerError: a worker has version 0\.0\)\)$"
    ):
        there.match(next(batches(1)))
    # two of each shard at once
    assert faults.made == 4
