"""What tests of the daemon start from."""

from __future__ import annotations

import pytest

from streamer.cli import daemon_options
from streamer.client import Control, Producer, Subscriber
from streamer.daemon import service
from tests.daemon_kit import (
    GENOME,
    running,
    settings,
    write_fasta,
)
from tests.waiting import DEADLINE


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """Clients, and a daemon that ends, give up as late as the tests do where none says when."""
    for client in (Control, Producer, Subscriber):
        monkeypatch.setitem(client.__init__.__kwdefaults__, "answer_seconds", DEADLINE)
    monkeypatch.setattr(daemon_options, "ANSWER_SECONDS", DEADLINE)
    for name in ("_BIND_SECONDS", "_JOIN_SECONDS"):
        monkeypatch.setattr(service, name, DEADLINE)


@pytest.fixture
def genome(tmp_path):
    return write_fasta(tmp_path / "genome.fa", [("left", GENOME[:2500]), ("right", GENOME[1500:])])


@pytest.fixture
def path(tmp_path, genome):
    return settings(tmp_path, f'sources = ["{genome.name}"]\nk = 11\n')


@pytest.fixture
def small(path):
    """A daemon that takes batches of at most 50,000 bytes."""
    with running(path, ["ingest.max_batch_bytes=50000"]) as daemon:
        yield daemon
