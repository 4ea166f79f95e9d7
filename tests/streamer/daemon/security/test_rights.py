"""What a key may do: patterns, prefixes, limits; decisions only."""

from __future__ import annotations

import pytest

from streamer.daemon.core.feed import Subscriptions
from streamer.daemon.core.ingest import IngestCore, Settings
from streamer.daemon.core.producers import Allowance, Allowances
from streamer.daemon.core.rights import EVERYTHING, KeyLimits, Rights
from streamer.daemon.core.sync import SyncCore, SyncLimits
from tests.daemon_kit import asked, parsed

DOMAINS = ("ingest", "feed", "sync", "control")
MATCH = Rights("m", "K", watch=("match",), sync=True)


@pytest.mark.parametrize(
    ("rights", "domains"),
    [
        (EVERYTHING, set(DOMAINS)),
        (Rights("a"), set()),
        (Rights("a", send=("x",)), {"ingest"}),
        (Rights("a", watch=("x",)), {"feed"}),
        (Rights("a", sync=True), set()),
        (MATCH, {"feed", "sync"}),
        (Rights("a", control=("status",)), {"control"}),
    ],
)
def test_a_key_enters_where_it_has_a_right(rights, domains):
    assert {domain for domain in DOMAINS if rights.may_enter(domain)} == domains
    assert not rights.may_enter("other")


def test_patterns():
    rights = Rights("a", send=("min?on", "run-*"), control=("status", "t*"))
    assert rights.may_send("minion")
    assert rights.may_send("run-")
    assert not rights.may_send("Minion")
    assert not rights.may_send("minion2")
    assert rights.may_order("targets")
    assert not rights.may_order("drain")
    brackets = Rights("b", send=("run[1]", "*[", "[!x]?"))
    assert all(brackets.may_send(name) for name in ("run[1]", "a[", "[!x]y"))
    assert not any(brackets.may_send(name) for name in ("run1", "yz", "[x]y"))


@pytest.mark.parametrize(
    ("prefix", "allowed"),
    [
        ("match.", True),
        ("match", True),
        ("mat", True),
        ("m", False),
        ("", False),
        ("mismatch.", False),
        ("beat.", True),
        ("status.", True),
    ],
)
def test_a_subscription_is_allowed_if_all_topics_that_begin_so_are(prefix, allowed):
    assert MATCH.may_subscribe(prefix) == allowed
    assert EVERYTHING.may_subscribe(prefix)


def test_subscriptions_are_kept_by_connection():
    held = Subscriptions()
    for prefix, connection in ((b"match.", 1), (b"match.", 2), (b"delta.", 2), (b"nothing", 2)):
        assert held.add(prefix, connection, MATCH)
    assert held.denied == {2: ("K", {"delta.": "the key 'm' may not watch 'delta.'"})}
    # of a subscription that was denied nothing is taken back
    held.remove(b"delta.", 2)
    held.remove(b"match.", 3)
    assert held.prefixes == {"match.": 2}
    held.leave(2)
    assert held.prefixes == {"match.": 1}
    assert not held.denied
    held.remove(b"match.", 1)
    held.leave(1)
    assert not held.prefixes
    assert not held.topics


def test_subscriptions_of_a_key_are_limited_over_its_connections():
    held, limited = Subscriptions(), MATCH._replace(limits=KeyLimits(subscriptions=2))
    other = MATCH._replace(name="o", key="O")
    for prefix, connection in ((b"match.", 1), (b"beat.", 2), (b"status.", 2)):
        held.add(prefix, connection, limited)
    assert "2 subscriptions already" in held.denied[2][1]["status."]
    held.add(b"status.", 3, other)
    assert held.prefixes == {"match.": 1, "beat.": 1, "status.": 1}
    held.leave(1)
    held.add(b"status.", 2, limited)
    assert held.prefixes == {"beat.": 1, "status.": 2}


def test_a_pull_of_what_may_not_be_watched_is_denied():
    core = SyncCore(SyncLimits(4, 4, 1 << 20, 1 << 22))
    fields = {"type": "pull", "id": 1, "after": 0, "credit": 1000}
    core.hear(b"a", asked(fields | {"topics": ["match.", "delta"]}), 0.0, MATCH)
    core.hear(b"a", asked({"type": "snapshot", "id": 2, "credit": 10}), 0.0, MATCH)
    core.hear(b"a", asked(fields | {"topics": ["match."]}), 0.0, MATCH)
    answers = [parsed(frames)[0] for _, frames in core.out]
    assert [(a["type"], a.get("reason"), a["id"]) for a in answers[:3]] == [
        ("refused", "denied", 1),
        ("refused", "denied", 2),
        ("pulling", None, 1),
    ]
    assert answers[0]["message"] == "the key 'm' may not watch 'delta'"


SETTINGS = Settings("s" * 16, 1, "none", 1 << 20, 1000)


def ingest():
    core = IngestCore(SETTINGS)
    core.tick(0.0, 0)
    core.life("running")
    return core


def hello(core, rights, name="a", route=b"r", **fields):
    header = {"v": 2, "type": "hello", "producer": name, "epoch": 1} | fields
    assert core.message(route, header, 0, 0, rights) is None
    return [answer for to, answer in core.answers() if to == route]


def offer(core, rights, sequence, size, name="a", route=b"r"):
    header = {"v": 2, "type": "batch", "producer": name, "epoch": 1, "seq": sequence}
    return core.message(route, header, size, sequence, rights)


def accepted(core, rights, sequence, size, **of):
    made = offer(core, rights, sequence, size, **of)
    return made and core.accept(made, None, b"")


def test_a_producer_of_another_name_is_denied_and_told_nothing_of_it():
    core, mine = ingest(), Rights("k", "K", send=("mine*",))
    assert [a["type"] for a in hello(core, EVERYTHING)] == ["welcome"]
    (refused,) = hello(core, mine, route=b"thief")
    assert refused["reason"] == "denied"
    assert refused["message"] == "the key 'k' may not send as 'a'"
    assert "received" not in refused
    assert "credit" not in refused
    # nor by a message that is refused for another reason
    header = {"v": 2, "type": "what", "producer": "a", "epoch": 1}
    core.message(b"thief", header, 0, 0, mine)
    (answer,) = [answer for route, answer in core.answers() if route == b"thief"]
    assert answer["reason"] == "malformed"
    assert "received" not in answer
    assert offer(core, mine, 1, 100, route=b"thief") is None
    assert not core.is_likely({"producer": "a", "epoch": 1, "seq": 1}, 100, mine)
    assert [a["type"] for a in hello(core, mine, name="mine1")] == ["welcome"]
    assert offer(core, EVERYTHING, 1, 100) is not None


def test_waiting_bytes_of_a_key_are_limited_over_its_producers():
    limited = Rights("g", "G", send=("*",), limits=KeyLimits(waiting_bytes=1500))
    core = ingest()
    for name in ("a", "b"):
        assert hello(core, limited, name=name)[0]["credit"] == 1500
    assert hello(core, EVERYTHING, name="other", route=b"o")[0]["credit"] > 100_000
    first = accepted(core, limited, 1, 1000)
    core.answers()
    assert offer(core, limited, 1, 600, name="b") is None
    ((_, refused),) = [(r, a) for r, a in core.answers() if a["type"] == "refused"]
    assert (refused["reason"], refused["credit"]) == ("credit", 500)
    # another key goes on
    assert accepted(core, EVERYTHING, 1, 1000, name="other", route=b"o")
    core.published([first])
    assert accepted(core, limited, 1, 600, name="b")


def test_bytes_per_second_of_a_key_are_limited_over_its_producers():
    limited = Rights("g", "G", send=("*",), limits=KeyLimits(bytes_per_second=100))
    core = ingest()
    # a burst of the largest batch
    assert hello(core, limited)[0]["credit"] == 1000
    assert hello(core, limited, name="b")[0]["credit"] == 1000
    hello(core, EVERYTHING, name="other", route=b"o")
    item = accepted(core, limited, 1, 1000)
    core.published([item])
    core.answers()
    assert offer(core, limited, 1, 10, name="b") is None
    assert accepted(core, EVERYTHING, 1, 1000, name="other", route=b"o")
    core.answers()
    # whoever waits is told once there is as much as it needs, and not before
    hello(core, limited, name="b", need=500)
    told = []
    for quarters in range(1, 24):
        core.tick(quarters / 4, 0)
        told += [
            (quarters / 4, answer["credit"])
            for _, answer in core.answers()
            if answer["type"] == "ack" and answer["producer"] == "b"
        ]
        if quarters % 4 == 0:
            hello(core, limited, name="b", need=500)
    assert told
    assert told[0] == (5.0, 500)


def test_what_a_limited_key_needs_is_not_reserved_before_it_may_send_it():
    limited = Rights("g", "G", send=("*",), limits=KeyLimits(bytes_per_second=1))
    core = IngestCore(SETTINGS._replace(memory_bytes=2000))
    core.tick(0.0, 0)
    core.life("running")
    hello(core, limited)
    item = accepted(core, limited, 1, 1000)
    core.published([item])
    hello(core, limited, need=1000)
    assert hello(core, EVERYTHING, name="other", route=b"o")[0]["credit"] == 1000


def test_an_allowance_moves_with_its_producer():
    core = ingest()
    limits = KeyLimits(waiting_bytes=2000)
    one, two = (Rights(name, name, send=("*",), limits=limits) for name in ("1", "2"))
    hello(core, one)
    item = accepted(core, one, 1, 800)
    hello(core, two)
    allowances = core._allowances
    assert [allowances.of(r, 0.0).waiting for r in (one, two)] == [0, 800]
    core.published([item])
    assert [allowances.of(r, 0.0).waiting for r in (one, two)] == [0, 0]


def test_a_bucket_fills_up_to_a_second():
    bucket = Allowance(KeyLimits(bytes_per_second=100), 50, 0.0)
    assert bucket.room(0.0) == 100
    bucket.take(100, 0.0)
    assert bucket.room(0.25) == 25
    assert bucket.room(10.0) == 100
    # time does not go back
    assert bucket.room(5.0) == 100
    assert Allowances(50).of(EVERYTHING, 0.0) is None
