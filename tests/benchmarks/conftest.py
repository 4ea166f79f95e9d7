from __future__ import annotations

from functools import partial

import pytest


@pytest.fixture
def bench(streamer):
    """Run one command line of ``scripts/bench``, as the fixture ``streamer`` runs the program's."""
    from benchmarks.__main__ import app

    return partial(streamer, app=app)
