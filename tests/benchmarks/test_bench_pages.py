"""The benchmark of open pages measures what its title says, on little."""

from __future__ import annotations

import pytest

from benchmarks.pages import pages

pytest.importorskip("uvicorn", reason="the live page needs starlette and uvicorn")
pytestmark = [pytest.mark.slow, pytest.mark.whole]


def test_each_pair_has_a_row_and_all_a_median():
    *pairs, last = pages(0.5, 2, 3)
    assert [row["pair"] for row in pairs] == ["1", "2"]
    for row in pairs:
        assert 0 < row["p50 ms"] <= row["p99 ms"]
        assert 0 < row["p50 ms, pages"] <= row["p99 ms, pages"]
        assert row["CPU ms"] > 0
        change = 100 * (row["p99 ms, pages"] / row["p99 ms"] - 1)
        assert float(row["p99 %"]) == pytest.approx(change, abs=0.06)
    assert last["pair"] == "median"
    assert list(last) == list(pairs[0])
    middle = sum(float(row["p50 %"]) for row in pairs) / 2
    assert float(last["p50 %"].split()[0]) == pytest.approx(middle, abs=0.11)
