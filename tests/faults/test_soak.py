"""A soak of some seconds, and the faults that its comparison and its slopes find."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.faults.soak_truth import BOUNDS, COLUMNS, is_long_enough, slope_of, slopes_of, table
from tests.faults.soaking import Plan, Soak, soak

# enough must be kept for a subscriber that lags on a busy machine
PLAN = Plan(15 / 3600, every=0.5, kill_every=4, reload_every=5, job_every=4, shrink=128)

SECONDS = np.linspace(0, 3 * 3600, 1080)
"""Those of the samples of three hours."""


@pytest.mark.whole
@pytest.mark.slow
def test_a_short_soak(tmp_path, capsys):
    assert soak(PLAN, tmp_path / "out") == 0
    said = capsys.readouterr().out
    assert "lost 0, twice 0, divergent 0" in said
    assert "| daemon_mb |" in said
    assert re.search(r"jobs: .*[1-9]\d* done", said)
    header, *rows = (tmp_path / "out" / "soak.tsv").read_text().splitlines()
    assert header.split("\t") == [*COLUMNS]
    assert len(rows) > 5
    last = dict(zip(COLUMNS, map(float, rows[-1].split("\t")), strict=True))
    assert last["daemon_mb"] > 50
    assert last["children_mb"] > 10
    assert last["descriptors"] > 20
    assert last["clients_killed"] >= 1
    assert last["reloads"] >= 1
    assert "</svg>" in (tmp_path / "out" / "soak.svg").read_text()


@pytest.mark.whole
@pytest.mark.slow
def test_the_journal_is_compared(tmp_path):
    """Expired batches count; batches that were never stored are missed."""
    one = Soak(PLAN._replace(shrink=1024), tmp_path)
    try:
        stored, expired = one.run()
    finally:
        one.close()
    assert stored > 0
    assert expired > 0
    assert stored + expired >= sum(one.truth.acked.values()) > 0
    run = next(run for run, count in one.truth.acked.items() if count)
    # a batch that was acknowledged and is nowhere
    acked = one.truth.acked[run]
    one.truth.acked[run] = len(one.truth._at[run]) + 1
    with pytest.raises(AssertionError, match="lost"):
        one.truth.check_journal(one.journal)
    one.truth.acked[run] = acked
    # a batch that was replayed but has no record in the journal
    records = max(one.truth._at.values(), key=lambda records: records[-1])
    records.append(records[-1] + 1)
    with pytest.raises(AssertionError, match="lost"):
        one.truth.check_journal(one.journal)
    # a batch that is in the journal but was not replayed
    del records[-2:]
    one.truth.acked.clear()
    with pytest.raises(AssertionError, match="never replayed"):
        one.truth.check_journal(one.journal)


def wandering(seed):
    """Series without a trend: first-order autoregressions of variance 1."""
    rng = np.random.default_rng(seed)
    made = rng.standard_normal((200, SECONDS.size))
    for at in range(1, SECONDS.size):
        made[:, at] = 0.8 * made[:, at - 1] + 0.6 * made[:, at]
    return made


def test_a_planted_leak_is_found_and_no_other():
    """30 MB an hour under noise of 3 MB."""
    flat = [slope_of(SECONDS, values) for values in wandering(1)]
    # 1 % of 200 is 2
    assert sum(abs(slope.slope) > slope.half for slope in flat) <= 8
    leak = 30 * SECONDS / 3600
    found = [slope_of(SECONDS, 3 * noise + leak) for noise in wandering(3)]
    assert sum(slope.grows(BOUNDS["daemon_mb"]) for slope in found) >= 190
    assert sum(abs(slope.slope - 30) <= slope.half for slope in found) >= 190


def test_the_table_names_what_grows():
    leaks = {"children_mb": 25.0, "daemon_mb": 15.0, "p50_ms": -500.0}
    made = [
        {"seconds": t} | {name: 50 + leaks.get(name, 0.0) * t / 3600 for name in BOUNDS}
        for t in SECONDS
    ]
    assert is_long_enough(made)
    text, growing = table(slopes_of(made), judged=True)
    assert growing == ["children_mb"]
    assert text.count("holds") == len(BOUNDS) - 1
