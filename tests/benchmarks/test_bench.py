"""The benchmark runs at a tiny size and names the machine and its peers; no times are judged."""

from __future__ import annotations

import sys

import pytest

pytestmark = pytest.mark.whole


@pytest.mark.parametrize("section", ["frozen", "grow", "snapshot", "memory", "figure39", "files"])
def test_every_part(section, bench):
    code, out, _ = bench("exact", "--kmers", 5_000, "--section", section)
    assert code == 0
    machine, _, title, _, header, rule, *rows = out.splitlines()
    assert "numba" in machine
    assert title.startswith("## ")
    assert header.startswith("| ")
    assert set(rule) <= set("| -")
    assert rows
    assert all(row.count("|") == header.count("|") for row in rows)


def test_a_missing_peer_is_said(bench, monkeypatch):
    monkeypatch.setitem(sys.modules, "sshash", None)
    code, out, _ = bench("exact", "--kmers", 2_000, "--section", "frozen")
    assert code == 0
    assert "pip install" in out


def test_numbers_of_gpus(bench):
    assert bench("asm", "--device", "cuda", "--gpus", "2")[0] == 2
    code, _, err = bench("asm", "--gpus", "1,2")
    assert code == 2
    assert "--gpus 1,2 needs --device cuda" in err
