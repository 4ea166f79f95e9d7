"""Workers of a cluster that load for long, or are killed or stopped meanwhile."""

from __future__ import annotations

import os
import signal
import time

import pytest

from streamer.cluster import worker_team
from streamer.cluster.cluster_matcher import ClusterEngine
from streamer.cluster.match_worker import MatchWorker
from tests.streamer.cluster.test_cluster_stream import (
    assert_equal,
    batches,
    genome,
    matchers,
    targets,
)
from tests.waiting import until

__all__ = ["genome", "targets"]  # fixtures

pytestmark = [pytest.mark.whole, pytest.mark.filterwarnings("ignore")]


def held_by(path):
    """A worker that loads its dictionary once there is a file."""

    class HeldWorker(MatchWorker):
        def load(self, *args):
            while not os.path.exists(path):
                time.sleep(0.02)
            return super().load(*args)

    return HeldWorker


@pytest.fixture
def gate(tmp_path, monkeypatch, nodes):
    """The file that workers wait for; none is sent to a node that another test has removed."""
    until(lambda: not nodes.ghosts(), "the end of removed nodes")
    path = tmp_path / "gate"
    monkeypatch.setattr(worker_team, "MatchWorker", held_by(str(path)))
    return path


def wait_for_life(matcher):
    """All workers have started to load; those that are meanwhile."""
    team = matcher._engine._team

    def all_alive():
        team._step([])
        return len(team.members) == 2 and all(member.alive for member in team.members)

    until(all_alive, "signs of life of both workers")
    assert not any(member.pid for member in team.members)
    return list(team.members)


def test_workers_that_load_for_long_are_waited_for(nodes, genome, targets, gate, monkeypatch):
    here, there, said = matchers("grow", targets, workers=1, shards=2)
    try:
        wait_for_life(there)
        monkeypatch.setattr(worker_team, "START_SECONDS", 4.0)
        say = there._engine._team._say

        def open_gate(line):
            say(line)
            gate.touch()

        there._engine._team._say = open_gate
        for batch in batches(genome, 2):
            assert_equal(here.match(batch), there.match(batch))
        assert said == ["workers of the cluster take long to start; waiting for them"]
    finally:
        here.close()
        there.close()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_one_lost_while_it_loads_is_replaced(number, nodes, genome, targets, gate, monkeypatch):
    monkeypatch.setattr(worker_team, "HANG_SECONDS", 3.0)
    here, there, said = matchers("grow", targets, workers=1, shards=2)
    try:
        first = wait_for_life(there)
        for pid in nodes.workers("HeldWorker"):
            nodes.kill(pid, number)
        team = there._engine._team
        until(lambda: team._step([]) or not set(first) & set(team.members), "the end of both")
        gate.touch()
        for batch in batches(genome, 2):
            assert_equal(here.match(batch), there.match(batch))
        why = "died" if number == signal.SIGKILL else "has not answered for 3 s"
        assert [why in line and line.endswith("one that was starting") for line in said] == [
            True
        ] * 2
    finally:
        here.close()
        there.close()


def test_k_mers_that_take_long_to_collect_are_no_silence(nodes, genome, targets, gate, monkeypatch):
    monkeypatch.setattr(worker_team, "START_SECONDS", 0.5)
    known, collected = ClusterEngine._known, []

    def slowly(self):
        time.sleep(1)
        collected.append(known(self))
        return collected[-1]

    monkeypatch.setattr(ClusterEngine, "_known", slowly)
    here, there, said = matchers("grow", targets, workers=1, shards=2)
    try:
        assert there._engine._team.reason() == ""
        assert [codes.size for codes in collected] == [0], "workers have the dictionary already"
        monkeypatch.setattr(worker_team, "START_SECONDS", 60)
        gate.touch()
        for batch in batches(genome, 2):
            assert_equal(here.match(batch), there.match(batch))
        assert said == []
    finally:
        here.close()
        there.close()
