"""Workers that fail for good, start late or answer late: the stream goes on. No Ray is needed."""

from __future__ import annotations

import random

import pytest

from streamer.cluster import cluster_matcher, worker_team
from streamer.cluster.cluster_matcher import ClusterMatcher
from streamer.cluster.match_worker import MatchWorker
from streamer.dictionary.targets import Dictionary
from streamer.errors import StreamerError
from streamer.matching.matcher import StreamMatcher
from streamer.matching.spec import MatchSpec
from streamer.sequences.read_batch import ReadBatch
from tests.streamer.cluster.fake_ray import Never, RayError, fake_cluster
from tests.streamer.cluster.test_cluster_stream import assert_equal

K = 11
GENOME = "".join(random.Random(41).choices("ACGT", k=20_000))
SPECS = {
    "frozen": {"mode": "frozen", "counted": True},
    "grow": {"mode": "grow", "counted": True, "chunk": 700},
    "seeded": {"mode": "grow", "seed_bases": 9_000, "chunk": 700},
}


class Worker(MatchWorker):
    """A worker in this process that does what ``faults`` says."""

    def __init__(self, faults, *args):
        self.faults = faults
        self.lessons = 0
        super().__init__(*args)

    def pid(self):
        if not self.faults.starts:
            raise Never
        return super().pid()

    def learn(self, codes):
        self.lessons += 1
        super().learn(codes)

    def match(self, request):
        if self.faults.hang:
            raise Never
        self.faults.parts -= 1
        if self.faults.parts < 0:
            message = "out of memory"
            raise RayError(message)
        return super().match(request)


class Faults:
    """starts: whether workers start. parts: how many are answered before workers die of each.

    hang: whether parts are never answered.
    """

    def __init__(self):
        self.starts = True
        self.hang = False
        self.parts = 1 << 60


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Parts and waits are short."""
    monkeypatch.setattr(cluster_matcher, "LEAST_PART", 2_000)
    monkeypatch.setattr(worker_team, "START_SECONDS", 0.5)
    monkeypatch.setattr(worker_team, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(worker_team, "LONGEST_PAUSE", 0.0)


@pytest.fixture
def targets(tmp_path):
    path = tmp_path / "targets.fa"
    path.write_text(f">x\n{GENOME[:6000]}\n>y\n{GENOME[4000:9000]}\n")
    return str(path)


def batches(count):
    rng = random.Random(43)
    for _ in range(count):
        starts = [rng.randrange(len(GENOME) - 900) for _ in range(20)]
        reads = [GENOME[at : at + rng.randrange(900)] for at in starts] + ["", "ACGTN" * 5]
        yield ReadBatch.from_sequences([f"r{i}" for i in range(len(reads))], reads)


def matchers(name, targets, shards=1):
    """One of this process, and one whose workers have faults."""
    spec = MatchSpec.of(**{"k": K, "sources": (targets,)} | SPECS[name])
    loaded = Dictionary.from_files(spec.sources, K, spec.strands, keep_records=spec.counted)
    faults, said = Faults(), []
    cluster = fake_cluster(lambda *args: Worker(faults, *args))
    there = ClusterMatcher(loaded, spec, cluster, workers=2, shards=shards, say=said.append)
    return StreamMatcher(loaded, spec), there, faults, said


@pytest.mark.parametrize("left", [0, 3, 5])
@pytest.mark.parametrize("name", SPECS)
def test_without_workers_the_daemon_matches_until_there_are_some(name, left, targets):
    here, there, faults, said = matchers(name, targets)
    some = list(batches(8))
    for batch in some[:2]:
        assert_equal(here.match(batch), there.match(batch))
    assert said == []
    # all die in the middle of a batch, and no other one starts
    faults.parts, faults.starts = left, False
    for batch in some[2:5]:
        assert_equal(here.match(batch), there.match(batch))
    assert said[-1] == "no worker of the cluster has answered for 0.5 s: matching in the daemon"
    # the cluster has room for new ones
    faults.parts, faults.starts = 1 << 60, True
    there.close()
    team = there._engine._team
    team._not_before = 0.0
    while not team._covered():
        team._step([])
    for batch in some[5:]:
        assert_equal(here.match(batch), there.match(batch))
    assert said[-1] == "workers of the cluster match"
    assert here.kmers == there.kmers


def test_a_shard_without_workers_is_one_line(targets):
    _, there, faults, _ = matchers("grow", targets, shards=2)
    some = list(batches(2))
    there.match(some[0])
    faults.parts, faults.starts = 0, False
    with pytest.raises(StreamerError, match=r"^no worker of the cluster has answered for 0\.5 s$"):
        there.match(some[1])


@pytest.mark.parametrize("name", SPECS)
def test_a_part_that_always_fails_is_matched_in_the_daemon(name, targets):
    here, there, faults, said = matchers(name, targets)
    some = list(batches(3))
    assert_equal(here.match(some[0]), there.match(some[0]))
    faults.parts = 2
    assert_equal(here.match(some[1]), there.match(some[1]))
    assert said[-1] == (
        "8 workers of the cluster failed in the same part of a batch; the last one died (out of "
        "memory): matching in the daemon"
    )
    faults.parts = 1 << 60
    assert_equal(here.match(some[2]), there.match(some[2]))
    assert said[-1] == "workers of the cluster match"


def test_a_part_of_a_shard_that_always_fails_is_one_line(targets):
    _, there, faults, _ = matchers("frozen", targets, shards=2)
    faults.parts = 0
    with pytest.raises(
        StreamerError, match=r"^8 workers .* in the same part .* died \(out of memory\)$"
    ):
        there.match(next(batches(1)))


@pytest.mark.parametrize("shards", [1, 2])
def test_a_worker_that_starts_late_learns_all_at_once(shards, targets):
    here, there, faults, _ = matchers("grow", targets, shards)
    team = there._engine._team
    some = list(batches(9))
    assert_equal(here.match(some[0]), there.match(some[0]))
    first = list(team.members)
    team._workers = 3
    faults.starts = False
    for batch in some[1:4]:
        assert_equal(here.match(batch), there.match(batch))
    late = [member for member in team.members if member not in first]
    assert len(late) == shards
    # only what was known when they were made
    assert [member.actor.worker.lessons for member in late] == [1] * shards
    # the others are gone, so that these match
    faults.starts = True
    for member in late:
        member.starting = member.actor.pid.remote()
    while not all(member.ready for member in late):
        team._step([])
    assert [member.actor.worker.lessons for member in late] == [2] * shards
    team.members[:] = late
    team._workers = 1
    for batch in some[4:]:
        assert_equal(here.match(batch), there.match(batch))
    assert here.kmers == there.kmers


def test_without_growth_a_worker_that_has_started_is_ready(targets):
    _, there, _, _ = matchers("frozen", targets)
    team = there._engine._team
    assert team.here
    while not all(member.ready for member in team.members):
        team._step([])
    assert [member.actor.worker.lessons for member in team.members] == [1, 1]


def test_answers_that_the_team_is_late_for_are_no_hang(targets, monkeypatch):
    here, there, faults, said = matchers("grow", targets)
    team = there._engine._team
    some = list(batches(3))
    assert_equal(here.match(some[0]), there.match(some[0]))
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
    assert_equal(here.match(some[1]), there.match(some[1]))
    assert said == []
    # one that hangs is still noticed
    team._grown, faults.hang = known, True
    assert_equal(here.match(some[2]), there.match(some[2]))
    assert any("has not answered for 0.2 s" in line for line in said)
