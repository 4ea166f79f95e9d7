"""Journals of tests lie in memory: a disk that others use makes each commit wait for theirs."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from tests.streamer.journal.kit import opened

MEMORY = Path("/dev/shm")


@pytest.fixture
def tmp_path(tmp_path):
    """A folder in memory, where there is such a thing."""
    if not os.access(MEMORY, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=MEMORY, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.fixture(autouse=True)
def closed(tmp_path):
    """What a test leaves open is closed at its end."""
    yield
    for journal in [*opened]:
        journal.close()
