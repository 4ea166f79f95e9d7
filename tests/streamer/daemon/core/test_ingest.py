"""The rules of ingest: one effect a key, refusals without effect, durability, a full disk."""

from __future__ import annotations

import copy
from dataclasses import fields
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from streamer.daemon.core import ingest, producers
from streamer.daemon.core.ingest import MAX_EPOCH_AHEAD, IngestCore
from streamer.daemon.core.life import DRAINING, ENDED, RUNNING, STARTING
from streamer.daemon.core.producers import MAX_MARK_BYTES
from streamer.protocol.header import PROTOCOL, Reason, WireError
from tests.ingest_peer import NOW, SETTINGS, Peer, batch, reason

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
