"""Workers that fail, start late or answer late: the stream goes on. No Ray is needed."""

from __future__ import annotations

import pytest

from streamer.cluster import cluster_tasks, connecting, match_worker, worker_team
from streamer.cluster.cluster_tasks import RETRIES
from streamer.cluster.connecting import Cluster
from streamer.cluster.match_worker import Address, MatchWorker, NodeLine
from streamer.errors import StreamerError
from streamer.sequences.read_batch import ReadBatch
from tests.streamer.cluster.faulty_workers import (
    GENOME,
    MORE_SPECS,
    NONE,
    SPECS,
    FakeRay,
    Faults,
    K,
    Never,
    RayError,
    Reference,
    batches,
    matchers,
)
from tests.streamer.cluster.test_cluster_stream import assert_all_equal

pytestmark = [pytest.mark.usefixtures("short_waits"), pytest.mark.whole]


@pytest.mark.parametrize("left", [0, 3, 5])
@pytest.mark.parametrize("name", SPECS)
def test_without_workers_the_daemon_matches_until_there_are_some(name, left, fault_targets):
    here, there, faults, said = matchers(name, fault_targets)
    some = list(batches(8))
    assert_all_equal(here, there, some[:2])
    assert said == []
    # all die in the middle of a batch, and no other one starts
    faults.parts, faults.starts = left, False
    assert_all_equal(here, there, some[2:5])
    assert said[-1] == f"no worker of the cluster answers ({NONE}): matching in the daemon"
    # the cluster has room for new ones
    faults.parts, faults.starts = 1 << 60, True
    there.close()
    team = there._engine._team
    while not team._covered():
        team._step([])
    assert_all_equal(here, there, some[5:])
    assert said[-1] == "workers of the cluster match"
    assert here.kmers == there.kmers


def test_a_shard_without_workers_is_one_line(fault_targets):
    _, there, faults, _ = matchers("grow", fault_targets, shards=2)
    some = list(batches(2))
    there.match([some[0]])
    faults.parts, faults.starts = 0, False
    with pytest.raises(StreamerError) as fault:
        there.match([some[1]])
    assert str(fault.value) == f"no worker of the cluster answers ({NONE})"


@pytest.mark.parametrize("name", SPECS)
def test_a_part_that_always_fails_is_matched_in_the_daemon(name, fault_targets):
    here, there, faults, said = matchers(name, fault_targets)
    some = list(batches(3))
    assert_all_equal(here, there, some[:1])
    faults.parts = 1
    assert_all_equal(here, there, some[1:2])
    assert said[-1] == (
        "8 workers of the cluster failed in the same part of a batch; the last one died (out of "
        "memory): matching in the daemon"
    )
    faults.parts = 1 << 60
    assert_all_equal(here, there, some[2:3])
    assert said[-1] == "workers of the cluster match"


def test_a_part_of_a_shard_that_always_fails_is_one_line(fault_targets):
    _, there, faults, _ = matchers("frozen", fault_targets, shards=2)
    faults.parts = 0
    with pytest.raises(
        StreamerError, match=r"^8 workers .* in the same part .* died \(out of memory\)$"
    ):
        there.match([next(batches(1))])


SLOTS = (1 << 9, 3 << 10, 1 << 20)
# of each specification with both numbers of shards, without lines and with one of the slots
CASES = [
    (name, slot, 1 + (i + bool(slot)) % 2)
    for i, name in enumerate(MORE_SPECS)
    for slot in (0, SLOTS[i % 3])
]


@pytest.mark.parametrize(("name", "slot", "shards"), CASES)
def test_results_are_the_same_with_and_without_lines(
    slot, name, shards, fault_targets, monkeypatch
):
    """Where there is none, no request or not every answer fits, Ray carries it."""
    monkeypatch.setattr(match_worker, "SLOT_BYTES", slot)
    if not slot:
        monkeypatch.setattr(NodeLine, "new", lambda: (None, Address("", 1, 0, 0, 0, "")))
        monkeypatch.setattr(MatchWorker, "_serve", lambda worker, line: None)
    here, there, _, said = matchers(name, fault_targets, shards)
    assert_all_equal(here, there, batches(4))
    assert there.kmers == here.kmers
    assert said == []


def test_the_line_of_a_worker_with_late_answers_is_given_up(fault_targets):
    """It may still write to the memory."""
    here, there, *_ = matchers("frozen", fault_targets)
    team = there._engine._team
    some = list(batches(3))
    assert_all_equal(here, there, some[:1])
    while team.ready < 2:
        team._step([])
    lines = [member.line for member in team.members]
    assert None not in lines

    def interrupt(*_):
        raise KeyboardInterrupt

    step, team._step = team._step, interrupt
    with pytest.raises(KeyboardInterrupt):
        there.match([some[1]])
    team._step = step
    assert [member.line for member in team.members] == [None, None]
    assert_all_equal(here, there, some[2:3])


def test_a_long_read_makes_a_part_for_each_worker(fault_targets):
    _, there, faults, _ = matchers("frozen", fault_targets)
    there.match([ReadBatch.from_sequences(["r"], [GENOME])])
    assert faults.parts == (1 << 60) - 2


def seeded(targets, shards, monkeypatch):
    """Matchers with workers that are there and will learn k-mers from the first reads."""
    monkeypatch.setitem(SPECS, "seeds", {"mode": "frozen", "seed_bases": 9_000, "chunk": 700})
    made = matchers("seeds", targets, shards)
    assert made[1]._engine._team.here
    return made


@pytest.mark.parametrize("shards", [1, 2])
def test_one_that_was_not_told_k_mers_is_replaced(shards, fault_targets, monkeypatch):
    """As where Ray cannot fetch what it should learn: the call fails before it runs."""
    here, there, faults, said = seeded(fault_targets, shards, monkeypatch)
    made = faults.made
    worker = there._engine._team.members[0].actor.worker
    monkeypatch.setattr(worker, "learn", lambda codes: None)
    assert_all_equal(here, there, batches(4))
    assert len(said) == 1
    assert said[0].startswith("a worker of the cluster failed (StreamerError: it has 0 of ")
    assert faults.made == made + 1


@pytest.mark.parametrize("shards", [1, 2])
def test_one_that_could_not_learn_is_replaced(shards, fault_targets, monkeypatch):
    here, there, _, said = seeded(fault_targets, shards, monkeypatch)

    def no_memory(codes):
        raise RayError("no memory")

    worker = there._engine._team.members[0].actor.worker
    monkeypatch.setattr(worker._engine, "learn", no_memory)
    assert_all_equal(here, there, batches(4))
    assert [line.split(":")[0] for line in said] == ["a worker of the cluster died (no memory)"]


GONE = "the head of the cluster has not answered for 0.05 s"


@pytest.fixture
def short_patience(monkeypatch):
    """With a head that does not answer."""
    monkeypatch.setattr(connecting, "HEAD_SECONDS", 0.05)
    monkeypatch.setattr(connecting, "_AGAIN_SECONDS", 0.0)
    monkeypatch.setattr(cluster_tasks, "_CHECK_SECONDS", 0.0)


@pytest.mark.usefixtures("short_patience")
@pytest.mark.parametrize("name", SPECS)
def test_without_a_head_the_daemon_matches(name, fault_targets):
    here, there, _, said = matchers(name, fault_targets)
    head = there._cluster.ray.head
    some = list(batches(4))
    assert_all_equal(here, there, some[:1])
    assert said == []
    head.clear()
    assert_all_equal(here, there, some[1:3])
    assert said == [f"the cluster has no workers ({GONE}): matching in the daemon"]
    # workers have missed what was learned meanwhile
    head.set()
    assert_all_equal(here, there, some[3:4])
    assert there._engine._team.members == []


@pytest.mark.usefixtures("short_patience")
def test_without_a_head_a_command_ends_with_one_line():
    def never():
        raise Never

    ray = FakeRay(None)
    ray.head.clear()
    with pytest.raises(StreamerError, match=rf"^{GONE}: start the cluster again"):
        cluster_tasks.result_of(Cluster(ray), Reference(never, ()), list)
    ray.head.set()


def test_a_shard_may_hold_no_code_at_all(tmp_path):
    """More shards than k-mers, of which the first has the code 0."""
    targets = tmp_path / "targets.fa"
    targets.write_text(f">a\n{'A' * K}\n")
    here, there, _, said = matchers("grow", str(targets), shards=3)
    assert_all_equal(here, there, batches(3))
    assert here.kmers == there.kmers
    assert said == []


@pytest.mark.parametrize("shards", [1, 2])
def test_a_worker_that_starts_late_learns_all_at_once(shards, fault_targets):
    here, there, faults, _ = matchers("grow", fault_targets, shards)
    team = there._engine._team
    some = list(batches(9))
    assert_all_equal(here, there, some[:1])
    first = list(team.members)
    team._workers = 3
    faults.starts = False
    assert_all_equal(here, there, some[1:4])
    late = [member for member in team.members if member not in first]
    assert len(late) == shards
    # they were sent nothing
    assert [member.actor.worker.lessons for member in late] == [0] * shards
    # what was known when they were made, and the rest; the others are gone, so that these match
    faults.starts = True
    while not all(member.ready for member in late):
        team._step([])
    assert [member.actor.worker.lessons for member in late] == [2] * shards
    team.members[:] = late
    team._workers = 1
    assert_all_equal(here, there, some[4:])
    assert here.kmers == there.kmers


def test_without_growth_a_worker_that_has_started_is_ready(fault_targets):
    _, there, _, _ = matchers("frozen", fault_targets)
    team = there._engine._team
    assert team.here
    while not all(member.ready for member in team.members):
        team._step([])
    assert [member.actor.worker.lessons for member in team.members] == [1, 1]


def test_answers_that_the_team_is_late_for_are_no_hang(fault_targets, monkeypatch):
    here, there, faults, said = matchers("grow", fault_targets)
    team = there._engine._team
    some = list(batches(3))
    assert_all_equal(here, there, some[:1])
    while not all(member.ready for member in team.members):
        team._step([])
    monkeypatch.setattr(worker_team, "HANG_SECONDS", 0.2)
    known = team._grown

    def slowly():
        for member in team.members:
            member.since -= 1.0  # seconds that this takes
        return known()

    team._grown = slowly
    team._workers = 3  # parts are under way while the third is made
    assert_all_equal(here, there, some[1:2])
    assert said == []
    # one that hangs is still noticed
    team._grown, faults.hang = known, True
    assert_all_equal(here, there, some[2:3])
    assert any("has not answered for 0.2 s" in line for line in said)


DAEMON = "the cluster has no workers ("


@pytest.mark.parametrize("shards", [1, 2])
def test_those_killed_while_they_start_make_no_other_wait(shards, fault_targets, monkeypatch):
    monkeypatch.setattr(worker_team, "LONGEST_PAUSE", 30.0)
    faults = Faults()
    faults.dying = RETRIES
    here, there, _, said = matchers("grow", fault_targets, shards, faults)
    assert_all_equal(here, there, batches(3))
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
    assert_all_equal(here, there, batches(3))
    assert said == ["workers of the cluster take long to start; waiting for them"]
    assert faults.made == 2 * shards


def test_one_that_stops_while_it_starts_is_noticed(fault_targets, monkeypatch):
    monkeypatch.setattr(worker_team, "START_SECONDS", 60.0)
    monkeypatch.setattr(worker_team, "HANG_SECONDS", 0.2)
    faults = Faults()
    faults.stopping = 4
    here, there, _, said = matchers("frozen", fault_targets, 2, faults)
    assert_all_equal(here, there, batches(2))
    assert faults.made > 4
    assert "a worker of the cluster has not answered for 0.2 s: one that was starting" in said


def test_if_all_die_while_they_start_the_daemon_matches(fault_targets):
    faults = Faults()
    faults.dying = 1 << 60
    here, there, _, said = matchers("grow", fault_targets, 1, faults)
    some = list(batches(3))
    assert_all_equal(here, there, some[:2])
    assert sum(line.startswith(DAEMON) for line in said) == 1
    faults.dying = 0
    while not there._engine._team._covered():
        there._engine._team._step([])
    assert_all_equal(here, there, some[2:3])
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
        there.match([next(batches(1))])


def test_those_that_raise_an_error_wait_before_the_next_try(fault_targets, monkeypatch):
    monkeypatch.setattr(worker_team, "LONGEST_PAUSE", 30.0)
    faults = Faults()
    faults.raising = "a worker has version 0.0"
    _, there, _, _ = matchers("frozen", fault_targets, 2, faults)
    with pytest.raises(
        StreamerError, match=r"failed \(StreamerError: a worker has version 0\.0\)\)$"
    ):
        there.match([next(batches(1))])
    # two of each shard at once
    assert faults.made == 4
