"""The benchmark of jobs measures what its title says, on little."""

from __future__ import annotations

import pytest

from benchmarks.jobs import jobs

pytestmark = [pytest.mark.slow, pytest.mark.whole]


def test_each_kind_of_job_has_rows():
    rows = list(jobs(0.3, 2, 2_000_000))
    kinds = [kind for kind in ("asm", "hamming", "primer", "lcs") for _ in range(3)]
    assert [row["job"] for row in rows] == kinds
    assert [row["pair"] for row in rows] == ["1", "2", "median"] * 4
    for row in rows:
        assert 0 < row["p50 ms"] <= row["p99 ms"]
        assert 0 < row["p50 ms, job"] <= row["p99 ms, job"]
        assert list(row) == list(rows[0])
