"""Odd messages harm nobody."""

from __future__ import annotations

import pytest

from tests.faults.odd import LIVES, SOCKETS, run


@pytest.mark.whole
def test_odd_messages_harm_nobody():
    odd, kills, batches = run(1000, seed=1)
    assert odd.total() >= 1000
    assert set(odd) == set(SOCKETS)
    assert kills >= LIVES
    assert batches > 80
