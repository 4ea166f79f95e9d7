"""``scripts/bench levenshtein``: its tables, on small inputs."""

from __future__ import annotations

import pytest

from benchmarks import levenshtein

pytestmark = pytest.mark.whole


def table_rows(part):
    lines = part.strip().splitlines()
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[2:]]


def test_the_tables(bench, monkeypatch):
    pytest.importorskip("sassy")
    monkeypatch.setattr(levenshtein, "DICTIONARIES", ((96, 24, 3), (500, 12, 2)))
    run = ("levenshtein", "--bases", "20000", "--kmers", "1000")
    code, out, _ = bench(*run)
    assert code == 0
    sassy, sizes, growth = map(table_rows, out.split("##")[1:])
    assert sassy[0][-1] == "ratio"
    assert int(sassy[2][3]) > 0
    assert float(sassy[2][-1]) > 0
    assert sizes[2][:4] == ["96", "24", "3", "pigeonhole, 6"]
    assert int(sizes[3][6]) > 0
    # 10 and 10 k-mers wait beside the thousand; a hundred take them in, a thousand all
    assert [(int(row[0]), int(row[1])) for row in growth[2:]] == [
        (0, 1), (10, 2), (10, 2), (100, 2), (1000, 1),
    ]  # fmt: skip


def test_the_inputs_are_what_they_say():
    patterns = levenshtein.random_patterns(50, 9, 2)
    assert patterns.codes.size == 50
    bases, offsets = levenshtein.random_batch(25_000)
    assert offsets.tolist() == [0, 10_000, 20_000, 25_000]
    assert bases.max() == 3
