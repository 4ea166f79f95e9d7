"""``scripts/bench primer``: its rows, and that what it compares is what the paper counts."""

from __future__ import annotations

import pytest

from benchmarks import primer

pytestmark = pytest.mark.whole

SIZE = primer.Size(400, 3000, 12)


def test_rows_of_a_small_run():
    rows = primer.on_cores(SIZE, 20, threads=[1])
    by_method = {row["method"]: row for row in rows}
    assert set(by_method) == {*primer.PAPER_SECONDS, "hook-row", "windows"}
    assert by_method["alternative"]["x alternative"] == 1
    assert by_method["conventional"]["comparisons"] > by_method["alternative"]["comparisons"]
    # a row of D has a comparison for each symbol of beta, and c + 1 rows are made
    per_start = by_method["conventional"]["comparisons"] / SIZE[0]
    assert 20 * SIZE[1] < per_start < 45 * SIZE[1]
    assert all(row["seconds for all"] > 0 for row in rows)


def test_scaling_filter_and_sizes():
    (row,) = primer.scaling(SIZE, 10, [1])
    assert row["windows, speedup"] == 1
    (row,) = primer.filtered([primer.Size(300, 9000, 2)])
    assert row["equal"] == "True"
    (row,) = primer.growing("cpu", [SIZE])
    assert row["seconds"] > 0


def test_the_command(bench):
    code, out, _ = bench("primer", "--section", "growing", "--size", "200,2000,8")
    assert code == 0
    assert "| alpha" in out
    assert bench("primer", "--size", "200,2000")[0] == 2
