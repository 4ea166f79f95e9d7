"""What tests of the daemon start from."""

from __future__ import annotations

import pytest

from streamer.cli import daemon_options
from streamer.client import Control, Producer, Subscriber
from streamer.daemon import service
from tests.daemon_kit import genome_settings, running
from tests.waiting import DEADLINE


@pytest.fixture(autouse=True, scope="module")
def patient():
    """Clients, and a daemon that ends, give up as late as the tests do where none says when."""
    with pytest.MonkeyPatch.context() as patch:
        for client in (Control, Producer, Subscriber):
            patch.setitem(client.__init__.__kwdefaults__, "answer_seconds", DEADLINE)
        patch.setattr(daemon_options, "ANSWER_SECONDS", DEADLINE)
        for name in ("_BIND_SECONDS", "_JOIN_SECONDS"):
            patch.setattr(service, name, DEADLINE)
        yield


@pytest.fixture
def path(tmp_path):
    return genome_settings(tmp_path)


@pytest.fixture
def genome(tmp_path):
    genome_settings(tmp_path)
    return tmp_path / "genome.fa"


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A daemon that takes batches of at most 50,000 bytes, for all tests of a module."""
    path = genome_settings(tmp_path_factory.mktemp("small"))
    with running(path, ["ingest.max_batch_bytes=50000"]) as daemon:
        yield daemon
