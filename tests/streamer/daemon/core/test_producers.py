"""Who is told of credit, and when."""

from __future__ import annotations

import pytest

from streamer.daemon.core import producers as module
from streamer.daemon.core.producers import ACTIVE_SECONDS, MAX_ROUTES, KnownProducer, Producers
from streamer.protocol.header import Reason, WireError

LATER = 2 * ACTIVE_SECONDS


def told(producers):
    return [producer.name for producer in producers.to_be_told()]


def greeted(producers, name, now=0.0, *, need=0):
    producer = producers.greet(name, 1)
    producers.hear(producer, b"route", now)
    producers.needs(producer, need)
    return producer


def test_who_waits_for_credit_while_the_daemon_starts_is_told_however_long_that_takes():
    producers = Producers(limit=1000, max_batch=100)
    early = greeted(producers, "early")
    assert producers.credit(early, 0) == 0
    producers.forget_idle(LATER)
    producers.open = True
    assert told(producers) == ["early"]
    assert producers.credit(early, LATER) == 1000
    assert told(producers) == []


def test_who_was_refused_for_want_of_credit_is_told_however_long_the_others_take():
    producers = Producers(limit=100, max_batch=100)
    producers.open = True
    one, other = (greeted(producers, name) for name in ("one", "other"))
    producers.accept(one, 60)
    assert not producers.has_room(other, 60)
    assert producers.credit(other, 0) == 40
    producers.forget_idle(LATER)
    assert (producers.active, told(producers)) == (1, [])
    producers.finish(one, 1, 60)
    assert told(producers) == ["other"]
    assert producers.has_room(other, 60)


def test_batches_that_wait_are_limited_in_number(monkeypatch):
    monkeypatch.setattr(module, "MAX_QUEUED", 2)
    producers = Producers(limit=1000, max_batch=100)
    producers.open = True
    one = greeted(producers, "one")
    for _ in range(2):
        assert producers.has_room(one, 10)
        producers.accept(one, 10)
    assert not producers.has_room(one, 10)
    assert producers.credit(one, 0) == 0
    producers.finish(one, 1, 10)
    assert producers.has_room(one, 10)


def test_names_that_leave_no_trace_make_room_and_are_not_told(monkeypatch):
    monkeypatch.setattr(module, "MAX_PRODUCERS", 2)
    producers = Producers(limit=100, max_batch=100)
    kept = greeted(producers, "kept")
    producers.accept(kept, 10)
    producers.credit(kept, 0)
    producers.credit(greeted(producers, "gone", need=50), 0)
    new = greeted(producers, "new")
    assert producers.find("gone") is None
    producers.credit(new, 0)
    producers.open = True
    producers.finish(kept, 1, 10)
    assert told(producers) == ["kept", "new"]
    producers.accept(new, 10)
    with pytest.raises(WireError) as caught:
        producers.greet("too many", 1)
    assert caught.value.reason == Reason.PRODUCERS


def test_whose_batches_were_accepted_in_an_earlier_epoch_is_never_forgotten(monkeypatch):
    """Else a batch of that epoch could be accepted once more."""
    monkeypatch.setattr(module, "MAX_PRODUCERS", 2)
    producers = Producers(100, 100, [KnownProducer("old", 7, 3, b"mark")])
    old = producers.greet("old", 8)
    assert (old.epoch, old.received, old.mark) == (8, 0, b"mark")
    greeted(producers, "other")
    greeted(producers, "another")
    assert producers.find("old") is old
    with pytest.raises(WireError, match="epoch 7 of producer 'old' has ended"):
        producers.greet("old", 7)


def test_what_the_first_one_needs_is_kept_for_it():
    """However eagerly others use what becomes free; and it is told once, when there is enough."""
    producers = Producers(limit=100, max_batch=80)
    producers.open = True
    small, large = greeted(producers, "small"), greeted(producers, "large")
    for _ in range(5):
        producers.accept(small, 10)
    producers.needs(large, 70)
    assert producers.credit(large, 0) == 50
    assert told(producers) == []
    for left in (40, 30):
        assert not producers.has_room(small, 10)
        assert producers.credit(small, 0) == 0
        producers.finish(small, 1, 10)
        assert producers.queued_bytes == left
    assert told(producers) == ["large"]
    assert producers.credit(large, 0) == 70
    assert told(producers) == []
    assert producers.has_room(large, 70)
    producers.accept(large, 70)
    assert (large.need, producers.free(small)) == (0, 0)
    producers.finish(large, 1, 70)
    assert producers.has_room(small, 10)


def test_needs_are_met_in_the_order_of_asking():
    producers = Producers(limit=100, max_batch=80)
    producers.open = True
    names = ["first", "second", "third"]
    waiting = [greeted(producers, name, need=80) for name in names]
    served = []
    for _ in names:
        for producer in waiting:
            producers.credit(producer, 0)
        (can,) = [producer for producer in waiting if producers.has_room(producer, 80)]
        producers.accept(can, 80)
        served.append(can.name)
        producers.finish(can, 1, 80)
        waiting.remove(can)
    assert served == names


@pytest.mark.parametrize("silent", [True, False])
def test_nothing_is_kept_for_who_is_silent_or_does_not_use_it(silent):
    producers = Producers(limit=100, max_batch=80)
    producers.open = True
    other, idle = greeted(producers, "other"), greeted(producers, "idle", need=80)
    if not silent:
        assert producers.credit(idle, 0) == 80
        producers.hear(idle, b"route", LATER)
    assert not producers.has_room(other, 50)
    producers.forget_idle(LATER)
    assert producers.has_room(other, 50)


def test_acknowledgements_go_to_the_latest_connections():
    producers = Producers(100, 100)
    producer = producers.greet("one", 1)
    for route in (b"a", b"b", b"c", b"a", b"d", b"e", b"d"):
        producers.hear(producer, route, 0)
    assert producer.routes == [b"c", b"a", b"e", b"d"]
    assert len(producer.routes) == MAX_ROUTES
    assert producers.greet("one", 2).routes == []
