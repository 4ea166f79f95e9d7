"""The folder of a run."""

from __future__ import annotations

import pytest


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    return folder
