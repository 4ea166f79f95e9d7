"""On a cluster of Ray: results are those of one machine, whatever happens to workers."""

from __future__ import annotations

import os
import random
import time
from dataclasses import dataclass

import numpy as np
import pytest

from streamer.cli.app import main
from streamer.client import Producer, Subscriber
from streamer.cluster import cluster_tasks, match_tasks
from streamer.cluster.cluster_matcher import LEAST_PART, ClusterMatcher
from streamer.cluster.cluster_tasks import ClusterTasks, Task
from streamer.cluster.connecting import Cluster
from streamer.daemon.config import load
from streamer.dictionary.targets import Dictionary
from streamer.errors import ConfigError, StreamerError
from streamer.matching.matcher import StreamMatcher
from streamer.matching.spec import MatchSpec
from streamer.sequences.read_batch import ReadBatch
from tests.cluster_kit import Trouble, needs_ray
from tests.daemon_kit import (
    GENOME,
    follow,
    process,
    reads_of,
    running,
    wait_for_line,
    write_fasta,
)
from tests.streamer.daemon.test_daemon_life import TOPICS, check_equal
from tests.waiting import DEADLINE, until

pytestmark = [pytest.mark.whole, pytest.mark.filterwarnings("ignore")]

SEED = 31
K = 13


@pytest.fixture(scope="module")
def sequence():
    return "".join(random.Random(SEED).choices("ACGT", k=400_000))


@pytest.fixture(scope="module")
def targets(sequence, tmp_path_factory):
    path = tmp_path_factory.mktemp("targets") / "targets.fa"
    path.write_text("".join(f">g{i}\n{sequence[i * 30_000 :][:20_000]}\n" for i in range(8)))
    return str(path)


def batches(sequence, count):
    """Batches of reads with gaps, a very long one among them."""
    rng = random.Random(SEED + 1)
    for _ in range(count):
        starts = [rng.randrange(len(sequence) - 2000) for _ in range(150)]
        reads = [sequence[at : at + rng.randrange(2000)] for at in starts]
        reads += ["", "ACGTN" * 9, sequence[: LEAST_PART * 2 + 77]]
        yield ReadBatch.from_sequences([f"r{i}" for i in range(len(reads))], reads)


def matchers(mode, targets, **cluster):
    """One of this process, and one on the cluster."""
    import ray

    spec = MatchSpec.of(k=K, sources=(targets,), mode=mode)
    loaded = Dictionary.from_files(spec.sources, K, spec.strands)
    said = []
    there = ClusterMatcher(loaded, spec, Cluster(ray), say=said.append, **cluster)
    return StreamMatcher(loaded, spec), there, said


def assert_equal(one, other):
    """Two results of one batch are the same in all that goes into a feed."""
    assert (one.number, one.base, one.version_before, one.version) == (
        other.number, other.base, other.version_before, other.version,
    )  # fmt: skip
    np.testing.assert_array_equal(one.events, other.events)
    np.testing.assert_array_equal(one.new_kmers, other.new_kmers)
    np.testing.assert_array_equal(one.new_starts, other.new_starts)
    assert (one.seeded, one.seed_bases) == (other.seeded, other.seed_bases)
    at = np.flatnonzero(one.events)
    np.testing.assert_array_equal(one.sets_at(at), other.sets_at(at))


def assert_all_equal(here, there, batches):
    """Two matchers have the same results of these batches."""
    for batch in batches:
        assert_equal(here.match([batch])[0], there.match([batch])[0])


def test_results_of_shards_are_those_of_one_machine(nodes, sequence, targets):
    here, there, said = matchers("frozen", targets, workers=1, shards=2)
    try:
        assert_all_equal(here, there, batches(sequence, 4))
        assert here.kmers == there.kmers
        assert said == []
    finally:
        here.close()
        there.close()


def ready(matcher):
    """How many workers can be asked, once the team has been looked after."""
    team = matcher._engine._team
    team._step([])
    return sum(member.ready for member in team.members)


def test_a_node_that_joins_gets_workers(nodes, sequence, targets, monkeypatch):
    here, there, _ = matchers("grow", targets)
    node = None
    try:
        some = list(batches(sequence, 9))
        assert_all_equal(here, there, some[:3])
        node = nodes.add()
        until(lambda: ready(there) >= 3, "a worker on the new node")
        assert ready(there) == 3
        assert_all_equal(here, there, some[3:6])
        nodes.remove(node)
        node = None
        assert_all_equal(here, there, some[6:])
        assert here.kmers == there.kmers
    finally:
        if node is not None:
            nodes.remove(node)
        here.close()
        there.close()


def test_the_feed_is_that_of_one_machine(nodes, path, tmp_path, genome, streamer):
    reads = reads_of(GENOME, random.Random(9), 200)
    settings = ["dictionary.mode=grow", "cluster.address=auto", "cluster.workers=2"]
    with (
        running(path, settings) as daemon,
        Subscriber(daemon.endpoints["feed"], TOPICS) as feed,
        Producer(daemon.endpoints["ingest"], name="p") as producer,
    ):
        assert feed.wait_for_daemon(DEADLINE)
        with Trouble(nodes, 77, 0.5, with_nodes=False, doing="MatchWorker"):
            messages = []
            for at in range(0, 200, 10):
                producer.send(reads[at : at + 10], timeout=DEADLINE)
                messages += follow(feed, 1)
        producer.flush(timeout=DEADLINE, matched=True)
        assert not feed.gaps
    check_equal(messages, dict(reads), streamer, tmp_path, genome, "grow")


@pytest.mark.parametrize(
    ("setting", "fault"),
    [
        ("matching.distance=1", "workers match without a distance"),
        ("matching.kernel=walk", "workers match with matching.kernel 'index'"),
        ("matching.device=cuda", "workers match on CPUs"),
    ],
)
def test_what_workers_cannot_do_is_refused(setting, fault, path):
    with pytest.raises(ConfigError, match=fault):
        load(path, ["cluster.address=local", setting])


@needs_ray
def test_a_daemon_of_its_own_cluster_drains(path, tmp_path, sequence, streamer):
    reads = write_fasta(tmp_path / "reads.fa", reads_of(GENOME, random.Random(3), 40))
    with process(["run", "--config", path, "--set", "cluster.address=local"]) as daemon:
        said = wait_for_line(daemon, "running on a Ray cluster")
        assert "local" in said
        code, _, err = streamer("send", reads, "--config", path)
        assert code == 0, err
        daemon.terminate()
        assert daemon.wait(DEADLINE) == 0


KILL_SEED = 2060


@dataclass
class Square(Task):
    seconds: float

    def run(self, part):
        time.sleep(self.seconds)
        return part * part


class EndOfTheWorker(Task):
    def run(self, part):
        os._exit(1)


class OwnError(Task):
    def run(self, part):
        raise StreamerError(f"part {part} is wrong")


class Bug(Task):
    def run(self, part):
        return 1 // part


@pytest.fixture
def cluster(nodes):
    import ray

    return Cluster(ray)


@pytest.mark.slow
def test_results_keep_their_order_while_workers_die_and_nodes_come_and_go(nodes, cluster):
    tasks = ClusterTasks(cluster, Square(0.15))
    with Trouble(nodes, KILL_SEED, 0.6, with_nodes=True) as trouble:
        found = list(tasks.in_order(range(80)))
    assert found == [number * number for number in range(80)]
    assert trouble.kills >= 3, f"seed {SEED}"


def test_rows_survive_kills(nodes, tmp_path, monkeypatch):
    text = "".join(random.Random(KILL_SEED).choices("ACGT", k=1_500_000))
    reads = "".join(f">r{i}\n{text[i * 900 : i * 900 + 1000]}\n" for i in range(1500))
    (tmp_path / "reads.fa").write_text(reads)
    (tmp_path / "targets.fa").write_text(f">g\n{text[:200_000]}\n")
    line = ["match", "reads.fa", "-d", "targets.fa", "-k", "21", "-D", "3"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(match_tasks, "TASK_BASES_NEAR", 100_000)
    assert main([*line, "--device", "cpu", "-q", "-o", "alone"]) == 0
    # a worker takes a second to begin
    with Trouble(nodes, KILL_SEED + 1, 2.0, with_nodes=False) as trouble:
        assert main([*line, "--device", "cpu", "-q", "-o", "there", "--cluster", "auto"]) == 0
    assert (tmp_path / "there").read_bytes() == (tmp_path / "alone").read_bytes()
    assert trouble.kills >= 1


def test_a_part_whose_workers_always_die_is_one_line(cluster, monkeypatch):
    monkeypatch.setattr(cluster_tasks, "RETRIES", 1)
    tasks = ClusterTasks(cluster, EndOfTheWorker())
    with pytest.raises(StreamerError, match=r"workers died 2 times in the same part of the work"):
        list(tasks.in_order([1]))


def test_errors_of_workers_are_those_of_one_process(cluster):
    with pytest.raises(StreamerError, match=r"^part 3 is wrong$"):
        list(ClusterTasks(cluster, OwnError()).in_order([3]))
    with pytest.raises(StreamerError, match=r"a worker failed: ZeroDivisionError"):
        list(ClusterTasks(cluster, Bug()).in_order([0]))


def test_results_that_are_not_taken_are_cancelled(nodes, cluster):
    tasks = ClusterTasks(cluster, Square(0.0))
    results = tasks.in_order(range(1000))
    assert next(results) == 0
    results.close()
    assert list(tasks.in_order([5])) == [25]
