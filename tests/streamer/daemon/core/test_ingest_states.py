"""The state machine of ingest: what is durable, after a restart, in each state, on credit."""

from __future__ import annotations

import pytest

from streamer.daemon.core import producers
from streamer.daemon.core.life import DRAINING, ENDED, RUNNING, STARTING
from streamer.daemon.core.producers import MAX_MARK_BYTES, KnownProducer
from streamer.protocol.header import PROTOCOL
from tests.ingest_peer import NOW, SETTINGS, Peer, batch, reason

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
