"""What tests of a cluster start from."""

from __future__ import annotations

import importlib.util

import pytest

from streamer.cluster import cluster_matcher, worker_team
from tests.cluster_kit import ray_nodes
from tests.streamer.cluster.faulty_workers import GENOME, made


@pytest.fixture(scope="session")
def nodes():
    """Two nodes on this host, which all tests share."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed: pip install '.[cluster]' in a clone")
    with ray_nodes() as found:
        yield found


@pytest.fixture(autouse=True)
def closed():
    """The workers of a test in this process end with it."""
    yield
    while made:
        made.pop().close()


@pytest.fixture
def short_waits(monkeypatch):
    """Parts and waits of a team are short."""
    monkeypatch.setattr(cluster_matcher, "LEAST_PART", 2_000)
    monkeypatch.setattr(worker_team, "START_SECONDS", 0.5)
    monkeypatch.setattr(worker_team, "LONGEST_PAUSE", 0.0)
    monkeypatch.setattr(worker_team, "POLL_SECONDS", 0.01)


@pytest.fixture
def fault_targets(tmp_path):
    """A file of targets for workers with faults."""
    path = tmp_path / "targets.fa"
    path.write_text(f">x\n{GENOME[:6000]}\n>y\n{GENOME[4000:9000]}\n")
    return str(path)
