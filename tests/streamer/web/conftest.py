"""A daemon with a page, and two targets, one with a name that is an attack."""

from __future__ import annotations

import pytest

from tests.daemon_kit import GENOME, settings, write_fasta

EVIL = "<img/src=x/onerror=alert(1)>"


@pytest.fixture
def evil():
    """The name of the second target."""
    return EVIL


@pytest.fixture
def path(tmp_path):
    """Its configuration."""
    fasta = write_fasta(tmp_path / "t.fa", [("one", GENOME[:2000]), (EVIL, GENOME[2000:])])
    return settings(tmp_path, f'k = 13\nsources = ["{fasta}"]')
