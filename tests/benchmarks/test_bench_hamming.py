"""``scripts/bench hamming`` on small texts: every method is measured, and finds the same."""

from __future__ import annotations

import pytest

from benchmarks import hamming as suite

pytestmark = pytest.mark.whole


def test_tables_have_every_method_and_equal_matches():
    methods = suite.methods_of("cpu")
    assert set(methods) >= {"bit-sliced", "naive", "shift-add", "pmasm"}
    rows = list(suite.table_1(suite.cpu_rate, methods, 3000, sets=2))
    assert len(rows) == len(suite.SETS) * len(methods)
    assert all(row["min"] <= row["mean"] <= row["max"] for row in rows)
    rows = list(suite.by_size(suite.cpu_rate, methods, [2000, 5000], 12))
    for size in (2000, 5000):
        assert len({row["matches"] for row in rows if row["text"] == size}) == 1
    shown = list(suite.ratios(rows, "cpu"))
    assert [row["method"] for row in shown] == [f"{method} (CPU)" for method in methods]
    assert {row["paper"] for row in shown if row["method"] == "pmasm (CPU)"} == {6.0}


def test_the_command_prints_its_tables(bench, monkeypatch):
    monkeypatch.setattr(suite, "MANY", ((8, 12, 2),))
    code, out, err = bench("hamming", "--symbols", 10_000, "--sets", 1)
    assert code == 0, err
    for title in ("Table 1", "Table 2", "Table 3", "Ratios", "hyperscan", "Many patterns"):
        assert title in out
    assert out.count("| bit-sliced") >= len(suite.SETS) + 2 * len(suite.SIZES)
