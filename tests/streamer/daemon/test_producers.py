"""Who is told of credit, and when."""

from __future__ import annotations

import pytest

from streamer.daemon import producers as module
from streamer.daemon.producers import ACTIVE_SECONDS, Producers
from streamer.protocol.header import Reason, WireError


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass when they are added."""

    class Clock:
        now = 1000.0

        def monotonic(self):
            return self.now

    made = Clock()
    monkeypatch.setattr(module, "time", made)
    return made


def told(producers):
    return [producer.name for producer in producers.to_be_told()]


def test_who_waits_for_credit_while_the_daemon_starts_is_told_however_long_that_takes(clock):
    producers = Producers(limit=1000, max_batch=100)
    early = producers.hear("early", 1, b"route")
    assert producers.credit(early) == 0
    clock.now += 2 * ACTIVE_SECONDS
    producers.forget_idle()
    producers.open = True
    assert told(producers) == ["early"]
    assert producers.credit(early) == 1000
    assert told(producers) == []


def test_who_was_refused_for_want_of_credit_is_told_however_long_the_others_take(clock):
    producers = Producers(limit=100, max_batch=100)
    producers.open = True
    one, other = (producers.hear(name, 1, b"route") for name in ("one", "other"))
    producers.accept(one, 60)
    with pytest.raises(WireError) as caught:
        producers.check_room(other, 60)
    assert caught.value.reason == Reason.CREDIT
    assert producers.credit(other) == 40
    clock.now += 2 * ACTIVE_SECONDS
    producers.forget_idle()
    assert (producers.active, told(producers)) == (1, [])
    producers.finish(one, 1, 60)
    assert told(producers) == ["other"]
    producers.check_room(other, 60)


def test_names_that_leave_no_trace_make_room_and_are_not_told(clock, monkeypatch):
    monkeypatch.setattr(module, "MAX_PRODUCERS", 2)
    producers = Producers(limit=100, max_batch=100)
    kept = producers.hear("kept", 1, b"route")
    producers.accept(kept, 10)
    producers.credit(kept)
    producers.credit(producers.hear("gone", 1, b"route"))
    new = producers.hear("new", 1, b"route")
    producers.credit(new)
    producers.open = True
    producers.finish(kept, 1, 10)
    assert told(producers) == ["kept", "new"]
    producers.accept(new, 10)
    with pytest.raises(WireError) as caught:
        producers.hear("too many", 1, b"route")
    assert caught.value.reason == Reason.PRODUCERS
