"""A daemon with a page, and two targets, one with a name that is an attack."""

from __future__ import annotations

import pytest

from tests.daemon_kit import GENOME, settings, write_fasta

EVIL = "<img/src=x/onerror=alert(1)>"


@pytest.fixture
def evil():
    """The name of the second target."""
    return EVIL


def settings_in(folder):
    """Its configuration."""
    fasta = write_fasta(folder / "t.fa", [("one", GENOME[:2000]), (EVIL, GENOME[2000:])])
    return settings(folder, f'k = 13\nsources = ["{fasta}"]')


@pytest.fixture
def path(tmp_path):
    return settings_in(tmp_path)
