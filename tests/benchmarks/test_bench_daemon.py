"""The benchmark of the daemon counts what went through, on little."""

from __future__ import annotations

import pytest

from benchmarks.daemon import daemon

pytestmark = pytest.mark.whole


def test_everything_that_was_sent_came_through():
    rows = daemon("cpu", 15, 2, 400_000, batch_bytes=(20_000,), transports=("ipc",))
    (row,) = rows
    assert row["GB"] * 1e9 == 400_000
    assert row["messages missed"] == 0
    assert row["s"] > 0
