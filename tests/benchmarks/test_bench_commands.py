"""The benchmark of whole commands: a row for each, with memory that fits its dictionary."""

from __future__ import annotations

import pytest

from benchmarks import commands, growing_daemon

pytestmark = pytest.mark.whole


def test_rows_of_a_small_run() -> None:
    rows = list(commands.dictionaries(kmers=200_000))
    assert {(row["dictionary"], row["report"]) for row in rows} == {
        (name, report)
        for name in ("one record", "many records", "one record, --save", "saved")
        for report in ("intervals", "windows")
    }
    assert all(min(row["peak GB"], row["program GB"]) > 0.05 for row in rows)
    daemons = list(growing_daemon.growing(100_000))
    assert len({(row["k"], row["strands"], row["distance"]) for row in daemons}) == 5
    assert all(row["k-mers"] > 1000 for row in daemons)
    assert all(0.05 < row["GB"] <= row["peak GB"] for row in daemons)
    assert [row["command"] for row in commands.texts(100_000)] == ["asm", "hamming", "primer"]
    strains = list(commands.strains(20_000))
    assert len(strains) == 6
    assert all(row["seconds"] > 0 for row in strains)
