"""Kills of a folder's watcher: each record counts once, and bugs that break this are found."""

from __future__ import annotations

import pytest

from tests.faults.watching import MISTAKES, run

# in the quick lane: any history with kills, in tests/streamer/watching
pytestmark = [pytest.mark.whole, pytest.mark.slow]


def test_kills_lose_nothing_and_count_nothing_twice():
    records, kills = run(20, seed=3)
    assert kills == 20
    assert records > 1000


@pytest.mark.parametrize("mistake", MISTAKES)
def test_kills_find_a_mistake(mistake):
    with pytest.raises(AssertionError, match=r"lost|twice|itself"):
        run(60, seed=3, mistake=mistake)
