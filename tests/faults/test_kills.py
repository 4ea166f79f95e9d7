"""Kills of the daemon lose nothing, and bugs that would lose something are found."""

from __future__ import annotations

import pytest

from tests.faults.kills import run
from tests.faults.nursery import MISTAKES

pytestmark = pytest.mark.whole

# the messages of checks, any of which may be the first to notice the mistake
_FOUND = "|".join(
    ("lost", "not stored", "refused", "twice", "divergent", "differently", "mark", "itself")
)


@pytest.mark.parametrize("durability", ["fsync", pytest.param("os", marks=pytest.mark.slow)])
def test_kills_lose_nothing(durability):
    """Of daemons of both kinds of dictionary."""
    found = run(6, seed=7, durability=durability, lives=3)
    assert found.kills.total() == 6
    assert found.batches > 30
    assert found.messages > 30
    assert found.missed > 0


@pytest.mark.slow  # the simulation finds the same ones in the quick lane
@pytest.mark.parametrize("mistake", MISTAKES)
def test_kills_find_a_mistake(mistake):
    with pytest.raises(AssertionError, match=_FOUND):
        run(60, seed=3, durability="os", mistake=mistake)
