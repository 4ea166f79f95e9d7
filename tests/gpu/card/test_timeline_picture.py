"""The picture of a timeline; it needs matplotlib (extra bench) and no card."""

from __future__ import annotations

import pytest


def test_a_picture_holds_every_bar(tmp_path):
    pytest.importorskip("matplotlib")
    from gpu.card.timeline import Activity
    from gpu.card.timeline_picture import draw

    bars = [Activity(row, 0, 0, at, at + 1) for at, row in enumerate(("CPU", "HtoD", "kernel"))]
    draw({"one": bars, "two": bars[:1]}, tmp_path / "t.svg")
    assert (tmp_path / "t.svg").read_text().count("<path") > len(bars) + 1
