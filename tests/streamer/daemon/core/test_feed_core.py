"""What the feed says, without a socket: stamps, beats, heads, subscriptions."""

from __future__ import annotations

import random
from types import SimpleNamespace

import msgpack
import pytest

from streamer.daemon.core.feed import MAX_IGNORED, FeedCore, Subscriptions
from streamer.daemon.core.heads import Heads
from streamer.daemon.core.rights import EVERYTHING, KeyLimits
from streamer.protocol.header import unseal
from streamer.protocol.schema import FEED, RECORD_TOPICS

STREAM = "0123456789abcdef"
TOPICS = list(RECORD_TOPICS)


def record(at, prev):
    made = {topic: [topic.encode()] for topic in prev if topic != "word"}
    return SimpleNamespace(
        at=at,
        prev=prev,
        message=lambda topic, header: (header, made[topic]) if topic in made else None,
    )


def feed(*subscriptions, **options):
    core = FeedCore(stream=STREAM, epoch=3, published=["read", "beat"], beat_seconds=2, **options)
    for prefix in subscriptions:
        core.subscriptions.add(prefix, 1)
    return core


def header_of(message):
    topic, header = unseal(message, header=1)
    found = msgpack.unpackb(header)
    assert found["topic"].encode() == topic
    return found


def test_records_are_stamped_for_those_who_listen():
    core = feed(b"read.", b"mat")
    records = [
        record(2, {"match": 0, "word": 0, "read": 0}),
        record(4, {"mismatch": 0, "read": 2}),
        record(7, {"match": 2, "read": 4}),
    ]
    common = {"v": 2, "stream": STREAM, "epoch": 3, "time": 99}
    stamps = [("match.", 2, 0), ("read.", 2, 0), ("read.", 4, 2), ("match.", 7, 2), ("read.", 7, 4)]
    said = core.publish(records, 99)
    assert [header for header, _ in said] == [
        common | {"topic": topic, "at": at, "prev": prev} for topic, at, prev in stamps
    ]
    assert core.at == 7
    assert {topic: at for topic, at in core.heads.items() if at} == {
        "match": 7,
        "mismatch": 4,
        "word": 2,
        "read": 7,
    }


@pytest.mark.parametrize("seed", range(10))
def test_numbers_go_on_where_an_earlier_feed_stopped(seed):
    """A restart, and who listens, change nothing in the numbers."""
    rng = random.Random(seed)
    heads, whole, at = Heads(), feed(b""), 0
    records = []
    for _ in range(40):
        at += rng.randint(1, 3)
        records.append(record(at, heads.take(at, rng.sample(TOPICS, rng.randint(0, len(TOPICS))))))
    told = [(h["topic"], h["at"], h["prev"]) for h, _ in whole.publish(records, 1)]
    cut = rng.randint(0, 40)
    first = feed(b"")
    before = first.publish(records[:cut], 1)
    second = feed(b"", at=first.at, heads=first.heads)
    both = before + second.publish(records[cut:], 1)
    assert [(h["topic"], h["at"], h["prev"]) for h, _ in both] == told
    assert (second.at, second.heads) == (whole.at, whole.heads)
    for topic in TOPICS:
        chain = [(prev, at) for name, at, prev in told if name == f"{topic}."]
        assert [prev for prev, _ in chain] == [0, *(at for _, at in chain)][: len(chain)]


def test_beats_and_changes_of_state_consume_no_number():
    core = feed(b"beat.", b"status.", at=5, heads={"read": 5})
    core.publish([record(6, {"match": 0})], 1)
    (status,) = core.announce("running", {"state": "?", "totals": {}}, 7)
    (beat,) = core.beat(10.0, 8, totals={"reads": 1}, version=4)
    heads = {f"{topic}.": 0 for topic in TOPICS} | {"read.": 5, "match.": 6}
    stamp = {"v": 2, "stream": STREAM, "epoch": 3, "at": 6, "heads": heads}
    assert header_of(status) == stamp | {
        "topic": "status.",
        "time": 7,
        "status": {"state": "running", "totals": {}},
    }
    assert header_of(beat) == stamp | {
        "topic": "beat.",
        "time": 8,
        "state": "running",
        "published": ["read.", "beat."],
        "totals": {"reads": 1},
        "version": 4,
    }
    assert core.at == 6


def test_a_beat_is_due_at_once_and_then_in_time():
    core = feed()
    assert core.seconds_to_beat(100.0) == 0
    assert core.beat(100.0, 1) == []  # nobody listens
    assert core.seconds_to_beat(100.5) == 1.5
    assert core.seconds_to_beat(102.0) == 0
    assert core.seconds_to_beat(999.0) == 0


def test_no_topic_begins_with_another_one():
    for one in FEED:
        assert [topic.name for topic in FEED if topic.wire.startswith(one.wire)] == [one.name]


def test_a_subscription_is_a_prefix():
    held = Subscriptions()
    for prefix, topics in (
        (b"m", {"match", "mismatch"}),
        (b"match", {"match"}),
        (b"match.", {"match"}),
        (b"", {topic.name for topic in FEED}),
    ):
        assert held.add(prefix, 1)
        assert held.topics == topics
        held.remove(prefix, 1)
        assert not held.topics
    for prefix in (b"x", b"match..", b"MATCH.", b"\xff", b"match.x"):
        assert held.add(prefix, 1)
        assert not held.topics
    assert (held.prefixes, held.ignored) == ({}, 5)
    held.remove(b"x", 1)
    held.remove(b"match.", 1)  # it has none
    assert (held.prefixes, held.ignored) == ({}, 5)


def test_a_topic_is_wanted_until_its_last_subscription_ends():
    held = Subscriptions()
    for connection in (1, 2):
        held.add(b"read.", connection)
    held.remove(b"read.", 1)
    assert held.topics == {"read"}
    assert held.prefixes == {"read.": 1}
    assert held.listeners["read."] == 1
    held.remove(b"read.", 2)
    assert not held.topics


@pytest.mark.parametrize("end", ["remove", "leave"])
def test_a_repeated_subscription_counts_once(end):
    """As in libzmq, which reports every one of them, and a single end."""
    held = Subscriptions()
    limited = EVERYTHING._replace(limits=KeyLimits(subscriptions=1))
    for _ in range(3):
        assert held.add(b"word.", 1, limited)
    assert held.prefixes == {"word.": 1}
    assert held.listeners["word."] == 1
    assert not held.denied
    if end == "remove":
        held.remove(b"word.", 1)
    else:
        held.leave(1)
    assert not held.topics
    assert not held.prefixes


def test_a_connection_has_few_subscriptions_that_match_nothing():
    held = Subscriptions()
    for number in range(MAX_IGNORED):
        assert held.add(b"nothing %d" % number, 7)
    assert not held.add(b"one more", 7)
    assert not held.add(b"one more", 7)
    assert held.add(b"read.", 7)  # it may have come before
    assert held.add(b"another connection's", 8)
    assert held.ignored == MAX_IGNORED + 3


def test_nothing_is_kept_of_a_connection_that_has_left():
    held = Subscriptions()
    every = {topic.wire[:end] for topic in FEED for end in range(len(topic.wire) + 1)}
    for number in range(100):
        for prefix in ("nothing", *every):
            assert held.add(prefix.encode(), number)
    assert held.prefixes == dict.fromkeys(every, 100)
    assert set(held.listeners.values()) == {100}
    for number in range(100):
        held.leave(number)
    assert not held.prefixes
    assert not any((held._of, held._keys, held._ignored_of, held.denied))
