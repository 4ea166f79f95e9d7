"""A minute of power cuts, and a check that they find missing syncs."""

from __future__ import annotations

import random

import pytest

from tests.faults.disk_model import DiskModel
from tests.faults.power import Cutter, cut, main
from tests.faults.recording import SYNCS


@pytest.mark.whole
def test_cuts_lose_nothing():
    """Two seeds, cuts at every kind of operation."""
    for seed in (1, 2):
        faults, shown = cut(1200, seed)
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


def outcomes(*operations, content=None) -> list[object]:
    """The possible results of a cut after these operations, over many choices."""
    model = DiskModel({"f": b"old!"} if content is None else content)
    for operation in operations:
        model.do(operation)
    found = [model.after_cut(random.Random(seed)) for seed in range(300)]
    return [one for n, one in enumerate(found) if one not in found[:n]]


def test_model_keeps_what_was_synced():
    """A synced write survives whatever follows, but only under a synced name."""
    write = "write", -1, 0, b"new"
    assert {one["f"] for one in outcomes(write)} == {b"old!", b"new!"}
    assert {one["f"] for one in outcomes(write, ("sync", -1))} == {b"new!"}
    created = ("create", "g", 1), ("write", 1, 0, b"g"), ("sync", 1)
    assert {"g" in one for one in outcomes(*created)} == {False, True}
    assert {one["g"] for one in outcomes(*created, ("sync names",))} == {b"g"}
    assert {"f" in one for one in outcomes(("delete", "f"))} == {False, True}
    assert outcomes(("delete", "f"), ("sync names",)) == [{}]


def test_model_tears_writes_and_sizes():
    """Sectors survive independently, in any of their versions; so does the length."""
    left = outcomes(("write", -1, 0, b"a" * 512 + b"b"), ("write", -1, 0, b"c"))
    contents = {one["f"] for one in left}
    assert {b"old!", b"a" * 512 + b"b", b"c" + b"a" * 511 + b"b", b"caaa", b"aaaa"} <= contents
    assert b"old!" + bytes(508) + b"b" in contents
    assert {one["f"] for one in outcomes(("size", -1, 2))} == {b"old!", b"ol"}


def test_model_of_a_directory():
    """A directory may be gone until its own name is synced."""
    model = DiskModel(None)
    model.do(("make",))
    left = [model.after_cut(random.Random(seed)) for seed in range(50)]
    assert None in left
    assert {} in left
    model.do(("sync parent",))
    assert all(model.after_cut(random.Random(seed)) == {} for seed in range(50))
