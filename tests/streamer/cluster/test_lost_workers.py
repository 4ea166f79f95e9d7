"""Workers killed, nodes removed and added, while a command runs: the rows stay the same."""

from __future__ import annotations

import os
import random
import time
from dataclasses import dataclass

import pytest

from streamer.cli.app import main
from streamer.cluster import cluster_tasks, match_tasks
from streamer.cluster.cluster_tasks import ClusterTasks, Task
from streamer.cluster.connecting import Cluster
from streamer.errors import StreamerError
from tests.cluster_kit import Trouble

pytestmark = [pytest.mark.whole, pytest.mark.filterwarnings("ignore")]
SEED = 2060


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
    with Trouble(nodes, SEED, 0.6, with_nodes=True) as trouble:
        found = list(tasks.in_order(range(80)))
    assert found == [number * number for number in range(80)]
    assert trouble.kills >= 3, f"seed {SEED}"


def test_rows_survive_kills(nodes, tmp_path, monkeypatch):
    text = "".join(random.Random(SEED).choices("ACGT", k=3_000_000))
    reads = "".join(f">r{i}\n{text[i * 900 : i * 900 + 1000]}\n" for i in range(3000))
    (tmp_path / "reads.fa").write_text(reads)
    (tmp_path / "targets.fa").write_text(f">g\n{text[:200_000]}\n")
    line = ["match", "reads.fa", "-d", "targets.fa", "-k", "21", "-D", "3"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(match_tasks, "TASK_BASES_NEAR", 100_000)
    assert main([*line, "--device", "cpu", "-q", "-o", "alone"]) == 0
    # a worker takes a second to begin
    with Trouble(nodes, SEED + 1, 2.0, with_nodes=False) as trouble:
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
