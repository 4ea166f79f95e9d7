"""A daemon on a cluster: its feed says what ``streamer match`` says, with workers killed."""

from __future__ import annotations

import random

import pytest

from streamer.client import Producer, Subscriber
from streamer.daemon.config import load
from streamer.errors import ConfigError
from tests.cluster_kit import Trouble
from tests.daemon_kit import (
    GENOME,
    follow,
    process,
    reads_of,
    running,
    wait_for_line,
    write_fasta,
)
from tests.streamer.daemon.test_daemon import TOPICS, check_equal
from tests.waiting import DEADLINE

pytestmark = [pytest.mark.whole, pytest.mark.filterwarnings("ignore")]


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


def test_a_daemon_of_its_own_cluster_drains(path, tmp_path, genome, streamer):
    reads = write_fasta(tmp_path / "reads.fa", reads_of(GENOME, random.Random(3), 40))
    with process(["run", "--config", path, "--set", "cluster.address=local"]) as daemon:
        said = wait_for_line(daemon, "running on a Ray cluster")
        assert "local" in said
        code, _, err = streamer("send", reads, "--config", path)
        assert code == 0, err
        daemon.terminate()
        assert daemon.wait(DEADLINE) == 0
