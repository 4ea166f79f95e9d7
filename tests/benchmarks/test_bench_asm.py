"""``scripts/bench asm`` prints every method and every peer that there is."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.whole


def test_tables(bench):
    code, out, _ = bench("asm", "--scale", 0.002)
    assert code == 0
    for title in ("Table 1", "Figures 6 and 7", "one pattern", "96 patterns"):
        assert title in out
    for method in ("sequential", "pasm", "bit-parallel"):
        assert out.count(f"| {method} ") == 10, method
    rows = [line.split("|") for line in out.splitlines() if line.startswith("| 16 | 6 ")]
    assert len(rows) == 1
