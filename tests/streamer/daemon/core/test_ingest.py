"""The rules of ingest: one effect a key, refusals without effect, durability, a full disk."""

from __future__ import annotations

import copy
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.daemon.core import ingest as module
from streamer.daemon.core import producers
from streamer.daemon.core.ingest import MAX_EPOCH_AHEAD, IngestCore, Settings
from streamer.daemon.core.life import DRAINING, ENDED, RUNNING, STARTING
from streamer.daemon.core.offers import MAX_MARK_BYTES
from streamer.daemon.core.producers import KnownProducer, ProducerState
from streamer.protocol.header import PROTOCOL, Header, Reason, WireError

NOW = 1_700_000_000_000
SETTINGS = Settings("0123456789abcdef", 3, "fsync", 1000, 400)


class Peer:
    """A core, and what goes in and comes out."""

    def __init__(self, durability: str = "fsync", **options: Any) -> None:
        self.core = IngestCore(SETTINGS._replace(durability=durability), **options)
        self.core.tick(0, NOW)
        self.core.life(RUNNING)
        self.accepted: list[Any] = []

    def send(self, header: Header, size: int = 10, content: int = 1, route: bytes = b"r") -> Any:
        """What is answered at once: a header, or None if it is an acknowledgement."""
        offer = self.core.message(route, header, size, content)
        if offer is not None:
            self.accepted.append(self.core.accept(offer, None, b""))
        return self.core._answers[-1][1] if self.core._answers else None

    def hello(self, epoch: int = 1, route: bytes = b"r", **more: Any) -> Any:
        return self.send(hello(epoch, **more), route=route)

    def answers(self, route: bytes = b"r") -> list[Header]:
        return [answer for to, answer in self.core.answers() if to == route]

    def producer(self, name: str = "p") -> ProducerState:
        found = self.core.producers.find(name)
        assert found is not None
        return found


def hello(epoch: int = 1, name: str = "p", **more: Any) -> Header:
    return {"v": PROTOCOL, "type": "hello", "producer": name, "epoch": epoch} | more


def batch(seq: int, epoch: int = 1, name: str = "p", **more: Any) -> Header:
    return hello(epoch, name) | {"type": "batch", "seq": seq} | more


def reason(answer: Header | None) -> str:
    assert answer is not None
    assert answer["type"] == "refused"
    return str(answer["reason"])


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
    assert [item.content for item in peer.accepted] == [5]


def test_what_no_journal_has_yet_is_in_memory():
    assert module.MAX_CONTENTS >= producers.MAX_QUEUED


def test_a_conflict_with_what_only_the_journal_remembers(monkeypatch):
    monkeypatch.setattr(module, "MAX_CONTENTS", 2)
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
    keys = [(item.producer.name, item.epoch, item.sequence) for item in peer.accepted]
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
