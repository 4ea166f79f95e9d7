"""Epochs of producers that are stored before they begin, and names that are forgotten."""

from __future__ import annotations

from typing import Any

import pytest

from streamer.daemon.core import producers as module
from streamer.daemon.core.producers import KnownProducer, Producers
from streamer.protocol.header import WireError
from tests.ingest_peer import NOW, SETTINGS, Peer, batch, reason

HOUR = 3600.0
STORING = SETTINGS._replace(stores_epochs=True, forget_seconds=24 * HOUR)


@pytest.fixture
def peer():
    """A daemon with a journal that stores epochs of producers."""
    return Peer(settings=STORING)


def types(answers: list[dict[str, Any]]) -> list[str]:
    return [answer["type"] for answer in answers]


def test_an_epoch_is_stored_before_it_begins(peer):
    peer.hello(5)
    assert peer.core.epochs() == [("p", 5)]
    assert peer.core.epochs() == []
    assert peer.answers() == []
    # who asks again learns that the daemon is there
    peer.hello(5)
    assert types(peer.answers()) == ["ack"]
    assert reason(peer.send(batch(1, 5))) == "credit"
    peer.answers()
    assert peer.core.epochs() == []
    peer.core.begun([("p", 5)])
    (welcome,) = peer.answers()
    assert (welcome["type"], welcome["epoch"], welcome["credit"]) == ("welcome", 5, 1000)
    # nothing is stored for an epoch that has begun
    assert peer.hello(5)["type"] == "welcome"
    assert peer.core.epochs() == []
    assert peer.send(batch(1, 5)) is not None


def test_an_epoch_is_stored_behind_the_batches_of_earlier_ones(peer):
    """The journal takes keys in their order."""
    peer.hello(1)
    peer.core.begun(peer.core.epochs())
    peer.send(batch(1))
    peer.send(batch(2, mark=b"two"))
    peer.answers()
    peer.hello(2)
    peer.core.durable(peer.accepted[:1])
    assert peer.core.epochs() == []
    peer.core.durable(peer.accepted)
    assert peer.core.epochs() == [("p", 2)]
    assert "welcome" not in types(peer.answers())
    peer.core.begun([("p", 2)])
    (welcome,) = peer.answers()
    assert (welcome["type"], welcome["epoch"], welcome["mark"]) == ("welcome", 2, b"two")


def test_an_epoch_that_was_left_before_it_began(peer):
    peer.hello(5)
    peer.hello(6)
    assert peer.core.epochs() == [("p", 5), ("p", 6)]
    peer.core.begun([("p", 5)])
    assert "welcome" not in types(peer.answers())
    assert reason(peer.hello(5)) == "stale-epoch"
    peer.answers()
    peer.core.begun([("p", 6)])
    assert [(a["type"], a["epoch"]) for a in peer.answers()] == [("welcome", 6)]


def test_names_are_not_dropped_behind_the_back_of_the_journal(peer, monkeypatch):
    monkeypatch.setattr(module, "MAX_PRODUCERS", 1)
    peer.hello(5)
    assert reason(peer.hello(1, name="other")) == "producers"
    assert peer.core.producers.find("p") is not None


def test_a_name_is_forgotten_after_a_long_silence(peer):
    peer.hello(1)
    peer.core.begun(peer.core.epochs())
    peer.send(batch(1))
    peer.core.published(peer.accepted)
    peer.answers()
    for hours in (0.5, 23.9):
        peer.core.tick(hours * HOUR, NOW)
        assert peer.core.silent() == []
    peer.core.tick(24.1 * HOUR, NOW)
    assert peer.core.silent() == ["p"]
    # the journal is asked now and then, not all the time
    peer.core.tick(24.2 * HOUR, NOW)
    assert peer.core.silent() == []
    peer.core.tick(25.3 * HOUR, NOW)
    assert peer.core.silent() == ["p"]
    assert peer.core.producers.find("p") is not None
    peer.core.forgotten(["p"])
    assert peer.core.producers.find("p") is None
    # it returns as a new one, in any epoch
    peer.hello(1)
    assert peer.core.epochs() == [("p", 1)]
    peer.core.begun([("p", 1)])
    welcome = peer.answers()[-1]
    assert (welcome["type"], welcome["received"], "mark" in welcome) == ("welcome", 0, False)


def test_a_name_without_a_batch_is_forgotten_after_an_hour(peer):
    peer.hello(1)
    peer.core.begun(peer.core.epochs())
    peer.core.tick(1.1 * HOUR, NOW)
    assert peer.core.silent() == ["p"]


@pytest.mark.parametrize("forget_seconds", [0.0, 24 * HOUR])
def test_names_without_a_batch_make_room_where_names_are_few(monkeypatch, forget_seconds):
    """Soon, and after a restart, too; names with batches and those in use stay."""
    monkeypatch.setattr(module, "MAX_PRODUCERS", 20)
    known = [KnownProducer(f"old{i}", 1, 0, b"") for i in range(4)]
    known.append(KnownProducer("kept", 1, 1, b"", heard=100.0))
    producers = Producers(100, 100, known, stores_epochs=True, forget_seconds=forget_seconds)
    for number in range(15):
        name = f"new{number}"
        producers.hear(producers.greet(name, 1), b"", 100.0)
        producers.begun(name, 1)
    with pytest.raises(WireError):
        producers.greet("more", 1)
    assert producers.silent(101.0) == [f"old{i}" for i in range(4)]
    producers.forget([f"old{i}" for i in range(4)], 101.0)
    producers.greet("more", 1)
    for number in range(3):
        producers.greet(f"waits{number}", 1)
    producers.hear(producers.find("new0"), b"", 107.0)
    names = producers.silent(107.0)
    assert names == [f"new{number}" for number in range(1, 15)]
    producers.forget(names, 107.0)
    # there is room enough now: the usual time counts
    assert producers.silent(300.0) == []


@pytest.mark.parametrize("what", ["hello", "batch", "awaited"])
def test_a_name_that_is_used_meanwhile_stays(peer, what):
    peer.hello(1)
    if what != "awaited":
        peer.core.begun(peer.core.epochs())
    peer.core.tick(25 * HOUR, NOW)
    assert peer.core.silent() == ([] if what == "awaited" else ["p"])
    if what == "hello":
        peer.hello(2)
    elif what == "batch":
        peer.send(batch(1))
    peer.core.tick(49 * HOUR, NOW)
    assert peer.core.silent() == []
    peer.core.forgotten(["p", "unknown"])
    assert peer.core.producers.find("p") is not None


def test_names_are_asked_about_some_at_a_time(monkeypatch):
    monkeypatch.setattr(module, "_AT_ONCE", 40)
    known = [KnownProducer(f"p{i}", 1, 1, b"", heard=-HOUR) for i in range(100)]
    producers = Producers(100, 100, known, forget_seconds=2 * HOUR)
    assert producers.silent(0) == []
    asked = [producers.silent(1.1 * HOUR + 61 * turn) for turn in range(4)]
    assert [len(names) for names in asked] == [40, 40, 20, 0]
    assert {name for names in asked for name in names} == {one.name for one in known}


def test_names_are_not_forgotten_without_a_limit():
    producers = Producers(100, 100, [KnownProducer("p", 1, 1, b"")])
    assert producers.silent(1e12) == []
