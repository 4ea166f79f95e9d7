"""The states of the daemon, by a table of what may follow what."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.daemon.core.life import (
    DRAINING,
    ENDED,
    FAILED,
    FINAL,
    FULL,
    RUNNING,
    STARTING,
    Life,
)

FOLLOWS = {
    STARTING: {RUNNING, FULL, DRAINING, FAILED},
    RUNNING: {FULL, DRAINING, FAILED},
    FULL: {RUNNING, DRAINING, FAILED},
    DRAINING: {ENDED, FAILED},
    ENDED: set(),
    FAILED: set(),
}

EVENTS = {
    "ready": lambda life: life.ready(),
    "full": lambda life: life.journal_full(True),
    "room": lambda life: life.journal_full(False),
    "limit": lambda life: life.at_limit(),
    "drain": lambda life: life.drain(),
    "drained": lambda life: life.drained(),
    "fail": lambda life: life.fail(),
}


def after(*events):
    entered = []
    life = Life(entered.append)
    for event in events:
        EVENTS[event](life)
    assert life.state == [STARTING, *entered][-1]
    return entered


@given(st.lists(st.sampled_from(sorted(EVENTS)), max_size=12))
def test_every_state_follows_one_it_may_follow(events):
    states = [STARTING, *after(*events)]
    for before, state in zip(states, states[1:], strict=False):
        assert state in FOLLOWS[before]
    if states[-1] in FINAL:
        assert after(*events, "ready", "full", "limit", "drain", "fail") == states[1:]


@pytest.mark.parametrize(
    ("events", "entered"),
    [
        (["ready", "drain", "drained"], [RUNNING, DRAINING, ENDED]),
        (["drained", "ready", "drained", "ready"], [RUNNING]),
        (["full", "ready", "room", "full", "room"], [FULL, RUNNING, FULL, RUNNING]),
        (["full", "room", "ready"], [RUNNING]),
        (["limit", "ready", "full", "room", "limit"], [FULL]),
        (["ready", "full", "limit", "room", "drain", "drained"], [RUNNING, FULL, DRAINING, ENDED]),
        (["ready", "full", "drain", "room", "drained"], [RUNNING, FULL, DRAINING, ENDED]),
        (["drain", "ready", "full", "fail", "fail"], [DRAINING, FAILED]),
    ],
)
def test_what_leads_where(events, entered):
    assert after(*events) == entered


def test_each_event_says_whether_it_changed_the_state():
    life = Life(lambda _: None)
    assert [life.ready(), life.ready()] == [True, False]
    assert [life.drained(), life.drain(), life.drain()] == [False, True, False]
    assert [life.drained(), life.fail()] == [True, False]
