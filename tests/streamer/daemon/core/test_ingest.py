"""Ingest without I/O: batches, states of the daemon, epochs of producers, and their credit."""

from __future__ import annotations

import copy
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.daemon.core import ingest, producers
from streamer.daemon.core import producers as module
from streamer.daemon.core.ingest import MAX_EPOCH_AHEAD, IngestCore
from streamer.daemon.core.life import DRAINING, ENDED, RUNNING, STARTING
from streamer.daemon.core.producers import (
    ACTIVE_SECONDS,
    MAX_MARK_BYTES,
    MAX_ROUTES,
    KnownProducer,
    Producers,
)
from streamer.protocol.wire import PROTOCOL, Reason, WireError
from tests.daemon_kit import NOW, SETTINGS, Peer, batch, reason

# ---- keys ----------------------------------------------------------------------------------------


def test_a_batch_sent_again_has_one_effect_and_with_another_content_is_a_conflict():
    peer = Peer()
    peer.hello()
    peer.answers()
    for _ in range(3):
        assert peer.send(batch(1), content=5) is None
        assert [a["received"] for a in peer.answers()] == [1]
    answer = peer.send(batch(1), content=6)
    assert reason(answer) == "conflict"
    assert (answer["seq"], answer["received"]) == (1, 1)
    assert [item.key.content for item in peer.accepted] == [5]


def test_what_no_journal_has_yet_is_in_memory():
    assert ingest.MAX_CONTENTS >= producers.MAX_QUEUED


def test_a_conflict_with_what_only_the_journal_remembers(monkeypatch):
    monkeypatch.setattr(ingest, "MAX_CONTENTS", 2)
    kept = {("p", 1, 1): 11}
    peer = Peer(content_of=lambda *key: kept.get(key))
    peer.hello()
    for number in (1, 2, 3, 4):
        peer.send(batch(number), content=10 + number)
    peer.answers()
    # 1 is in the journal, 2 is forgotten everywhere, 3 and 4 are in memory
    assert [peer.send(batch(n), content=10 + n) for n in (1, 2, 3, 4)] == [None] * 4
    assert peer.send(batch(2), content=99) is None
    for number in (1, 3, 4):
        assert reason(peer.send(batch(number), content=99)) == "conflict"
        peer.answers()
    assert len(peer.core._contents) == 2


def test_only_a_hello_raises_an_epoch():
    peer = Peer()
    assert reason(peer.send(batch(1))) == "epoch"
    assert peer.core.producers.find("p") is None
    peer.hello(2)
    for epoch, why in ((3, "epoch"), (2**63 - 1, "epoch"), (1, "stale-epoch")):
        answer = peer.send(batch(1, epoch))
        assert reason(answer) == why
        assert "received" not in answer
        assert answer["epoch"] == epoch
    assert reason(peer.hello(1)) == "stale-epoch"
    peer.answers()
    assert peer.send(batch(1, 2)) is None
    assert (peer.producer().epoch, peer.producer().received) == (2, 1)


def test_an_absurd_epoch_is_refused_and_the_owner_stays():
    peer = Peer()
    peer.hello(NOW)
    peer.send(batch(1, NOW))
    latest = NOW + MAX_EPOCH_AHEAD
    for epoch in (latest + 1, 2**63 - 1):
        assert reason(peer.hello(epoch)) == "epoch"
        assert reason(peer.hello(epoch, name="other")) == "epoch"
    assert len(peer.core.producers) == 1
    peer.answers()
    assert peer.send(batch(2, NOW)) is None
    peer.hello(latest)
    assert peer.producer().epoch == latest


def test_an_epoch_that_is_absurd_since_the_clock_was_set_back_goes_on():
    peer = Peer()
    peer.hello(NOW)
    peer.core.tick(1, NOW - 10 * MAX_EPOCH_AHEAD)
    peer.answers()
    assert peer.hello(NOW)["type"] == "welcome"


def test_a_hello_offers_versions():
    peer = Peer()
    assert reason(peer.hello(versions=[1, 3])) == "version"
    assert reason(peer.hello(versions=2)) == "version"
    assert reason(peer.hello(versions=[float(PROTOCOL), True])) == "version"
    assert peer.core.producers.find("p") is None
    assert peer.hello(versions=[3, PROTOCOL])["version"] == PROTOCOL


# ---- refusals ------------------------------------------------------------------------------------

# what an answer said is no effect: the next one says it again
_SAID = {"told_credit", "offered"}


def effects(core: IngestCore) -> Any:
    """All that messages can change, but for what has been said and the count of refusals."""
    known = core.producers
    states = {
        p.name: {f.name: copy.copy(getattr(p, f.name)) for f in fields(p) if f.name not in _SAID}
        for p in known
    }
    queued = known.queued_bytes, known.queued_batches
    order = [*known._active], [*known._needy]
    held = [item.number for item in core._undurable], dict(core._contents), core._number
    return states, queued, order, held, [*core._unacknowledged], core._life, core._full


numbers = st.one_of(st.integers(-1, 6), st.just(2**63 - 1), st.just(NOW), st.none())
headers = st.fixed_dictionaries(
    {
        "v": st.just(PROTOCOL),
        "type": st.sampled_from(["hello", "batch", "batch", "batch", "bye", None]),
        "producer": st.sampled_from(["p", "q", "", 5]),
        "epoch": numbers,
    },
    optional={
        "seq": numbers,
        "need": st.sampled_from([0, 1, 300, 10**9, -1, "x"]),
        "mark": st.sampled_from([b"", b"m", b"m" * (MAX_MARK_BYTES + 1), "text", None]),
    },
)
messages = st.tuples(
    st.just("message"),
    headers,
    st.sampled_from([0, 1, 150, 400, 401]),
    st.integers(0, 1),
    st.sampled_from([b"r", b"s"]),
    st.booleans(),
)
happenings = st.one_of(
    st.tuples(st.just("full"), st.booleans()),
    st.tuples(st.just("life"), st.sampled_from([STARTING, RUNNING, RUNNING, DRAINING, ENDED])),
    st.tuples(st.sampled_from(["durable", "published", "answers"])),
)


@given(st.lists(st.one_of(messages, messages, messages, happenings), max_size=30), st.booleans())
def test_a_refused_message_changes_nothing(events, journal):
    peer = Peer("fsync" if journal else "none")
    peer.hello()
    peer.send(batch(1))
    published = 0
    for kind, *rest in events:
        if kind == "message":
            header, size, content, route, good = rest
            peer.core._answers.clear()
            before = effects(peer.core)
            offer = peer.core.message(route, header, size, content)
            if offer is not None and good:
                peer.accepted.append(peer.core.accept(offer, None, b""))
            elif offer is not None:
                peer.core.refuse(route, WireError(Reason.BASE, "a bad read"), header)
            answers = [answer for _, answer in peer.core._answers]
            if any(answer["type"] == "refused" for answer in answers):
                assert effects(peer.core) == before, header
                assert len(answers) == 1
            else:
                assert effects(peer.core) != before or peer.core._unacknowledged or answers
        elif kind == "full":
            peer.core.journal_full(*rest)
        elif kind == "life":
            peer.core.life(*rest)
        elif kind == "answers":
            peer.core.answers()
        elif kind == "durable" and peer.accepted:
            peer.core.durable(peer.accepted)
        elif kind == "published" and peer.accepted[published:]:
            peer.core.published(peer.accepted[published:])
            published = len(peer.accepted)
    keys = [item.key[:3] for item in peer.accepted]
    assert len(keys) == len(set(keys))
    assert [item.number for item in peer.accepted] == [*range(len(keys))]
    queued = sum(item.size for item in peer.accepted[published:])
    assert peer.core.producers.queued_bytes == queued <= SETTINGS.memory_bytes


def test_refusals_are_counted_but_those_that_credit_brings():
    peer = Peer()
    peer.hello()
    peer.send(batch(1), size=400)
    peer.send(batch(2), size=400)
    assert reason(peer.send(batch(3), size=400)) == "credit"
    assert peer.core.refused == 0
    assert reason(peer.send(batch(9))) == "gap"
    assert reason(peer.send(batch(3), size=401)) == "too-large"
    assert peer.core.refused == 2


# ---- durable -------------------------------------------------------------------------------------


def test_with_durability_none_what_is_accepted_is_durable():
    peer = Peer("none")
    peer.hello()
    peer.send(batch(1, mark=b"one"))
    (_, answer) = peer.answers()
    assert (answer["received"], answer["durable"], answer["matched"]) == (1, 1, 0)
    assert peer.hello()["mark"] == b"one"


def test_durable_advances_when_the_journal_says_so_and_credit_when_results_are_out():
    peer = Peer()
    assert "mark" not in peer.hello()
    for number in (1, 2, 3):
        peer.send(batch(number, mark=b"%d" % number), size=100)
    *_, answer = peer.answers()
    assert (answer["received"], answer["durable"], answer["credit"]) == (3, 0, 700)
    assert "mark" not in peer.hello()
    peer.core.durable(peer.accepted[:2])
    *_, answer = peer.answers()
    assert (answer["type"], answer["durable"], answer["credit"]) == ("ack", 2, 700)
    assert peer.hello()["mark"] == b"2"
    peer.core.published(peer.accepted[:1])
    *_, answer = peer.answers()
    assert (answer["durable"], answer["matched"], answer["credit"]) == (2, 1, 800)
    # what is published has been recorded, whichever is heard first
    peer.core.published(peer.accepted[1:])
    *_, answer = peer.answers()
    assert (answer["durable"], answer["matched"]) == (3, 3)
    peer.core.durable(peer.accepted[2:])
    peer.hello()
    *_, answer = peer.answers()
    assert (answer["durable"], answer["matched"], answer["credit"]) == (3, 3, 1000)


def test_batches_of_earlier_epochs_are_counted_until_they_are_published():
    peer = Peer("none")
    assert peer.hello()["earlier"] == 0
    for number in (1, 2, 3):
        peer.send(batch(number))
    peer.core.published(peer.accepted[:1])
    assert peer.hello(2)["earlier"] == 2
    peer.send(batch(1, epoch=2))
    assert peer.hello(3)["earlier"] == 3
    for left, one in zip((2, 1, 0), peer.accepted[1:], strict=True):
        peer.core.published([one])
        *_, answer = peer.answers()
        assert (answer["epoch"], answer["matched"], answer["earlier"]) == (3, 0, left)


def test_a_later_run_is_welcome_once_the_batches_of_the_earlier_one_are_durable():
    """Else it would go on from a mark that is not the last."""
    peer = Peer()
    peer.hello(1)
    for number in (1, 2):
        peer.send(batch(number, mark=b"%d" % number))
    peer.answers()
    assert peer.hello(2, route=b"new") is None
    assert peer.answers(b"new") == []
    assert reason(peer.send(batch(3))) == "stale-epoch"
    peer.core.durable(peer.accepted[:1])
    assert [answer["type"] for answer in peer.answers(b"new")] == ["ack"]
    # who asks again is told that the daemon is there, but has no credit
    peer.hello(2, route=b"new")
    (answer,) = peer.answers(b"new")
    assert (answer["type"], answer["epoch"], answer["credit"]) == ("ack", 2, 0)
    assert reason(peer.send(batch(1, 2), route=b"new")) == "credit"
    peer.answers(b"new")
    peer.core.durable(peer.accepted)
    answer, _ = peer.answers(b"new")
    assert (answer["type"], answer["epoch"], answer["mark"]) == ("welcome", 2, b"2")
    assert (answer["received"], answer["durable"], answer["credit"]) == (0, 0, 980)
    assert peer.send(batch(1, 2), route=b"new") is None
    peer.core.published(peer.accepted)
    assert peer.producer().matched == 1


def test_the_mark_is_that_of_the_last_durable_batch_of_the_name():
    peer = Peer("none")
    peer.hello(1)
    peer.send(batch(1, mark=b"x" * MAX_MARK_BYTES))
    peer.answers()
    assert reason(peer.send(batch(2, mark=b"x" * (MAX_MARK_BYTES + 1)))) == "malformed"
    assert peer.hello(2)["mark"] == b"x" * MAX_MARK_BYTES
    peer.send(batch(1, 2))
    assert "mark" not in peer.hello(3)


# ---- restart -------------------------------------------------------------------------------------


def test_a_restored_daemon_goes_on_where_it_stopped():
    peer = Peer(known=[KnownProducer("p", 5, 7, b"seven")], number=40)
    answer = peer.hello(5)
    assert answer | {"type": "welcome", "stream": SETTINGS.stream, "session": 3} == answer
    assert [answer[key] for key in ("received", "durable", "matched")] == [7, 7, 7]
    assert (answer["mark"], answer["durability"], answer["version"]) == (
        b"seven",
        "fsync",
        PROTOCOL,
    )
    peer.send(batch(8, 5))
    assert [item.number for item in peer.accepted] == [40]
    assert reason(peer.hello(4)) == "stale-epoch"


def test_a_restored_producer_may_send_on_without_a_hello():
    peer = Peer(known=[KnownProducer("p", 5, 7, b"")])
    assert peer.send(batch(8, 5)) is None
    assert [answer["received"] for answer in peer.answers()] == [8]


# ---- states --------------------------------------------------------------------------------------


def test_a_full_disk_takes_credit_away_until_there_is_room():
    peer = Peer()
    peer.hello()
    peer.hello(name="silent", route=b"silent")
    peer.send(batch(1))
    peer.answers()
    peer.core.journal_full(True)
    (answer,) = peer.answers(b"silent")
    assert (answer["type"], answer["state"], answer["credit"]) == ("ack", "full", 0)
    answer = peer.send(batch(2))
    assert (reason(answer), answer["state"], answer["received"]) == ("full", "full", 1)
    assert peer.send(batch(1)) is not None
    assert peer.answers()[-1]["type"] == "ack"
    peer.core.journal_full(False)
    assert [(a["state"], a["credit"]) for a in peer.answers()] == [("running", 490)]
    peer.send(batch(2))
    assert len(peer.accepted) == 2


def test_a_full_dictionary_takes_no_batches_whatever_the_disk_has():
    peer = Peer()
    peer.hello()
    peer.send(batch(1))
    peer.answers()
    peer.core.journal_full(True)
    peer.core.at_limit()
    peer.core.journal_full(False)
    (answer,) = peer.answers()
    assert (answer["type"], answer["state"], answer["credit"]) == ("ack", "full", 0)
    answer = peer.send(batch(2))
    assert (reason(answer), answer["received"]) == ("full", 1)
    assert "max_kmers" in answer["message"]
    assert len(peer.accepted) == 1


def test_a_drain_ends_with_the_last_batch_and_everybody_is_told():
    peer = Peer()
    peer.hello()
    peer.hello(name="silent", route=b"silent")
    peer.send(batch(1))
    peer.answers()
    peer.core.life(DRAINING)
    assert not peer.core.drained
    (answer,) = peer.answers(b"silent")
    assert (answer["state"], answer["credit"]) == (DRAINING, 0)
    assert reason(peer.send(batch(2))) == "draining"
    peer.core.published(peer.accepted)
    assert peer.core.drained
    assert peer.answers()[-1]["matched"] == 1
    peer.core.life(ENDED)
    assert [a["state"] for a in peer.answers()] == [ENDED]


@pytest.mark.parametrize("state", [STARTING, RUNNING])
def test_a_producer_that_asked_while_the_daemon_started_is_told_of_credit(state):
    peer = Peer()
    peer.core.life(STARTING)
    assert peer.hello()["credit"] == 0
    peer.answers()
    peer.core.tick(100, NOW)
    peer.core.life(state)
    assert [a["credit"] for a in peer.answers()] == ([1000] if state == RUNNING else [])


# ---- credit --------------------------------------------------------------------------------------


def test_a_batch_larger_than_the_credit_waits_without_a_refusal():
    peer = Peer()
    for name in ("p", "q", "r"):
        peer.hello(name=name, route=name.encode())
    for name in ("q", "r"):
        for number in range(1, 5):
            peer.send(batch(number, name=name), size=100, route=name.encode())
    peer.answers()
    assert peer.hello(need=350, route=b"p")["credit"] == 200
    peer.core.published(peer.accepted[:1])
    assert peer.answers(b"p")[1:] == []
    # what has become free is not for the others
    answer = peer.send(batch(5, name="q"), size=100, route=b"q")
    assert (reason(answer), answer["credit"]) == ("credit", 0)
    peer.core.published(peer.accepted[1:2])
    assert [a["credit"] for a in peer.answers(b"p")] == [400]
    peer.send(batch(1), size=350, route=b"p")
    assert peer.producer().received == 1
    peer.answers()
    assert reason(peer.send(batch(5, name="r"), size=100, route=b"r")) == "credit"


def test_who_asks_again_keeps_its_place():
    peer = Peer()
    peer.hello(name="full", route=b"full")
    for number in (1, 2):
        peer.send(batch(number, name="full"), size=400, route=b"full")
    for name in ("first", "second", "first"):
        peer.hello(name=name, route=name.encode(), need=350)
    peer.answers(b"first")
    peer.core.published(peer.accepted[:1])
    told = {answer["producer"]: answer["credit"] for _, answer in peer.core.answers()}
    assert (told["first"], told.get("second", 0) < 350) == (400, True)


def test_asking_again_and_again_reserves_nothing_for_ever():
    peer = Peer()
    for now in range(int(producers.ACTIVE_SECONDS) + 1):
        peer.core.tick(now, NOW)
        peer.hello(need=400)
        assert peer.producer().need == 400
    peer.core.tick(producers.ACTIVE_SECONDS + 0.1, NOW)
    assert peer.producer().need == 0


def test_a_need_beyond_every_batch_is_that_of_the_largest():
    peer = Peer()
    peer.hello(need=10**9)
    assert peer.producer().need == SETTINGS.max_batch_bytes
    peer.hello()
    assert peer.producer().need == 0


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
