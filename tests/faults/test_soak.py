"""A soak of some seconds, and the faults that its comparison finds."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from tests.faults.soak_samples import COLUMNS
from tests.faults.soak_truth import Truth
from tests.faults.soaking import Plan, Soak, soak

SECONDS = 15
# enough must be kept for a subscriber that lags on a busy machine
PLAN = Plan(SECONDS / 3600, every=0.5, kill_every=4, reload_every=5, job_every=4, shrink=128)


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
    assert all(len(row.split("\t")) == len(COLUMNS) for row in rows)
    last = dict(zip(COLUMNS, map(float, rows[-1].split("\t")), strict=True))
    assert last["daemon_mb"] > 50
    assert last["children_mb"] > 10
    assert last["descriptors"] > 20
    assert last["disk_mb"] > 0.1
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


def message(at: int, number: int) -> Any:
    header = {"producer": "p", "producer_epoch": 1, "producer_seq": number, "prev": at - 1}
    return header, [b"names", b"%d" % number]


class Both:
    """What sync and feed have of the records 1, 2, 3 with a batch each."""

    def __init__(self) -> None:
        keys = [("read", at) for at in (1, 2, 3)]
        self.puller = SimpleNamespace(answers=[], order=[*keys], at=3)
        self.puller.messages = {key: message(key[1], key[1]) for key in keys}
        self.healer = SimpleNamespace(order=[*keys], last={"read": 3}, missing=0)
        self.healer.messages = {key: message(key[1], key[1]) for key in keys}

    def compare(self) -> Truth:
        truth = Truth()
        truth.compare(self.puller, self.healer)
        return truth


def test_what_agrees_is_forgotten():
    both = Both()
    truth = both.compare()
    assert truth.batches == truth.compared == 3
    assert not both.puller.messages
    assert not both.healer.messages
    truth.acked["p", 1] = 3
    assert truth.is_complete
    truth.acked["p", 1] = 4
    assert not truth.is_complete
    # a message that the feed brings again, late
    both.healer.messages["read", 2] = message(2, 2)
    truth.compare(both.puller, both.healer)
    assert truth.compared == 3


def test_nothing_is_compared_before_the_subscriber_is_healed():
    both = Both()
    both.healer.missing = 3
    assert both.compare().compared == 0
    assert len(both.healer.messages) == 3


def lose(both: Both) -> None:
    del both.healer.order[1], both.healer.messages["read", 2]


def change(both: Both) -> None:
    both.healer.messages["read", 2] = message(2, 2)[0], [b"names", b"other"]


def repeat(both: Both) -> None:
    for side in (both.healer, both.puller):
        side.messages["read", 3] = message(3, 2)


def skip(both: Both) -> None:
    for side in (both.healer, both.puller):
        side.messages["read", 2] = message(2, 3)


def invent(both: Both) -> None:
    del both.puller.order[2], both.puller.messages["read", 3]


def expire(both: Both) -> None:
    both.puller.answers.append({"type": "reset", "reason": "too-old"})


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (lose, "lost by the subscriber"),
        (change, "divergent"),
        (repeat, "lost or twice"),
        (skip, "lost or twice"),
        (invent, "published and not stored"),
        (expire, "too-old"),
    ],
)
def test_each_fault_is_found(fault, said):
    both = Both()
    fault(both)
    with pytest.raises(AssertionError, match=said):
        both.compare()
