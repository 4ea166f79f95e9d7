"""What tests of a cluster start from."""

from __future__ import annotations

import importlib.util

import pytest

from tests.cluster_kit import ray_nodes


@pytest.fixture(scope="session")
def nodes():
    """Two nodes on this host, which all tests share."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed: pip install 'kmer-streamer[cluster]'")
    with ray_nodes() as made:
        yield made
