"""The benchmarks of the journal measure what their titles say, on little."""

from __future__ import annotations

import pytest

from benchmarks.durability import latency, recovery, replay

pytestmark = pytest.mark.whole


def test_latency_has_a_row_for_everything_beside():
    rows = list(latency(["fsync"], 0.5))
    assert [row["beside"] for row in rows] == ["nothing", "a replay", "a stuck subscriber"]
    for row in rows:
        assert 0 < row["p50 ms"] <= row["p99 ms"] <= row["most ms"]


def test_replay_pulls_what_was_sent():
    (row,) = replay(["none", "os"], 3 << 20)
    assert row["GB"] == pytest.approx(3 * 1_048_000 / 1e9)
    assert row["replay bases/s"] > 0


def test_recovery_restores_what_was_learnt():
    (row,) = recovery(1_000_000, 2)
    # nearly every window of a random million is new
    assert 970_000 <= row["k-mers"] <= 980_000
    assert row["p50 s"] <= row["p99 s"]
