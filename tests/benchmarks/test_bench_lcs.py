"""``scripts/bench lcs``: what it measures is what it says, at sizes that take no time."""

from __future__ import annotations

import pytest

from benchmarks import lcs as bench
from benchmarks import peers

pytestmark = pytest.mark.whole


def test_lengths_stand_beside_the_peer():
    rows = bench.lengths((70, 600), threads=2, repeats=1)
    assert {row["method"] for row in rows if row["threads"] == 2} == {"systolic", "bit-parallel"}
    for row in rows:
        assert row["n"] in (70, 600)
        if row["seconds"] is None:
            assert row["note"] == peers.missing("rapidfuzz")
            continue
        assert row["G cells/s"] == pytest.approx(row["n"] ** 2 / row["seconds"] / 1e9)
        if row["method"] == "rapidfuzz LCSseq":
            assert row["x rapidfuzz"] == pytest.approx(1)


def test_slow_methods_are_left_out_where_they_would_take_minutes(monkeypatch):
    monkeypatch.setattr(bench, "SLOWEST_CELLS", 1_000)
    methods = {row["method"] for row in bench.lengths((70,), threads=1, repeats=1)}
    assert methods == {"systolic", "bit-parallel", "rapidfuzz LCSseq"}
    methods = {row["method"] for row in bench.sequences((70,), threads=1)}
    assert methods == {"systolic", "bit-parallel"}


def test_similar_genomes_differ_by_what_was_substituted():
    few, many = bench.similar(20_000, (0.0005, 0.01))
    assert 0 < few["difference"] < many["difference"] <= 2 * 0.02 * 20_000
    assert few["sequence, s"] > 0


def test_figures_and_table(monkeypatch):
    monkeypatch.setattr(bench, "FIGURE_A", (50_000, 200_000))
    rows = list(bench.figures(0.002, 2))
    assert [(row["m"], row["n"]) for row in rows] == [
        (m, n) for m in (100, 400) for n in (2_000, 4_000, 10_000, 20_000)
    ]
    assert all(row["bit-parallel, 2 threads"] > 0 for row in rows)
    for row in bench.table_1(0.002, 1, sizes=(1_000_000,)):
        parts = row["passes, s"] + row["transfer, s"] + row["rest, s"]
        assert parts == pytest.approx(row["total, s"])
        assert row["passes, %"] + row["transfer, %"] + row["rest, %"] == pytest.approx(100)


def test_figures_of_a_card_stand_beside_the_papers(monkeypatch):
    monkeypatch.setattr(bench, "_match", lambda *_: lambda: None)
    monkeypatch.setattr(bench, "_breakdown", lambda *_: {"total, s": 2.0})
    monkeypatch.setattr(bench, "random_letters", lambda count, seed: None)
    rows = list(bench.gpu_figures(1, 1))
    assert len(rows) == 16
    (ours,) = [row for row in rows if (row["m"], row["n"]) == (20_000_000, 10_000_000)]
    assert ours["LCS paper, s"] == 7_239.77
    assert ours["times"] == pytest.approx(7_239.77 / 2)
    assert "times" not in next(bench.gpu_figures(0.5, 1))
