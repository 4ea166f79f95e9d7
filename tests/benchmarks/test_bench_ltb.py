"""``scripts/bench ltb``: its tables, on small inputs."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import ltb
from trie.windows import window_codes

pytestmark = pytest.mark.whole


def test_the_thesis_input_is_seeded_with_the_beginning_of_its_stream():
    tree, (bases, offsets) = ltb.thesis_input(6, 3000, seed=500)
    assert offsets.tolist() == [0, 3000]
    codes, _ = window_codes(bases[:500], np.array([0, 500]), 6, canonical=False)
    assert np.array_equal(tree.codes(), np.unique(codes))
    assert ltb.thesis_input(6, 100)[0].codes().size <= 95


def test_the_tables(bench, monkeypatch):
    monkeypatch.setattr(ltb, "KS", (4, 6))
    monkeypatch.setattr(ltb, "DICTIONARIES", ((50, 9, 2),))
    code, out, _ = bench("ltb", "--device", "cpu", "--bases", "1000", "-D", "1")
    assert code == 0
    tables = [part.strip().splitlines() for part in out.split("##")[1:]]
    assert "Fig. 37" in tables[0][0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in tables[0][2:]]
    assert rows[0] == ["k", "D", "trie-nodes", "CPU active s", "CPU sliced s"]
    assert [row[:2] for row in rows[2:]] == [["4", "1"], ["6", "1"]]
    assert all(float(row[4]) > 0 for row in rows[2:])
    assert "50" in tables[1][-1].split("|")[1]
