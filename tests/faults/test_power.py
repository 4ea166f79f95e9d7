"""A minute of power cuts, and a check that they find missing syncs."""

from __future__ import annotations

import pytest

from tests.faults.power import SYNCS, Cutter, cut, main


@pytest.mark.whole
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_cuts_lose_nothing(seed):
    """Cuts at every kind of operation."""
    faults, shown = cut(800, seed)
    assert not faults, shown


@pytest.mark.whole
@pytest.mark.parametrize("sync", SYNCS)
def test_cuts_find_a_sync_left_out(sync):
    """Every sync is needed: without it, something acknowledged is lost."""
    cutter = Cutter(1, sync)
    try:
        found = next(
            (fault for number in range(60) for fault in cutter.chain(number) if fault), None
        )
    finally:
        cutter.close()
    assert found is not None, SYNCS[sync]


def test_cuts_command_says_what_was_lost(capsys):
    assert main(["40", "--seed", "3"]) == 0
    line = capsys.readouterr().out
    assert line.startswith("power: 40 cuts, seed 3: lost 0, twice 0, wrong 0 (")
    assert line.count("\n") == 1
    assert main(["200", "--leave-out", "data"]) == 1
    total, first = capsys.readouterr().out.splitlines()
    assert "lost 0," not in total
    assert "--seed 1 --chain 0 --leave-out 'data'" in first
