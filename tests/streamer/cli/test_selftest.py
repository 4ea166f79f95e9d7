"""``streamer selftest`` on a machine without a card, and what it says of wrong and slow results."""

from __future__ import annotations

import pytest

from streamer import selftest

pytestmark = pytest.mark.whole


def test_the_cpu(streamer):
    code, out, _ = streamer("selftest", "--device", "cpu")
    assert code == 0
    lines = [line.split("\t") for line in out.splitlines()]
    assert {line[1] for line in lines} >= {"frozen, index", "grow, walk", "distance 3, pieces"}
    assert all(line[0] == "cpu" and line[2] == "ok" for line in lines)


def test_wrong_results_are_told(streamer, monkeypatch):
    monkeypatch.setattr(selftest, "on_cpu", lambda: [selftest.Outcome("cpu", "grow, walk", False)])
    code, out, err = streamer("selftest", "--device", "cpu")
    assert code == 1
    assert "WRONG" in out
    assert err.splitlines()[-1] == "streamer: error: wrong results: grow, walk"


def test_slow_results_have_a_cause():
    slow = selftest.Outcome("cuda", "frozen", True, 1e6, 1e9)
    assert "likely cause: a card" in slow.line()
    assert "cause" not in selftest.Outcome("cpu", "frozen", True, 2e9, 1e9).line()
