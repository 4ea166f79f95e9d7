"""The feed without sockets: stamps, beats, subscriptions, and who is too slow."""

from __future__ import annotations

import random
from types import SimpleNamespace

import msgpack
import pytest

from streamer.daemon.core.feed import MAX_IGNORED, Backlog, FeedCore, Subscriptions
from streamer.daemon.core.rights import EVERYTHING, KeyLimits
from streamer.protocol.schema import FEED, RECORD_TOPICS
from streamer.protocol.wire import unseal
from tests.stored_batches import taken

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
    topic, header = unseal(message)
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
    heads, whole, at = {}, feed(b""), 0
    records = []
    for _ in range(40):
        at += rng.randint(1, 3)
        records.append(
            record(at, taken(heads, at, rng.sample(TOPICS, rng.randint(0, len(TOPICS)))))
        )
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


LIMIT = 1600
# what the kernel holds of a connection at most
FULL = 200


def backlog(*connections):
    made = Backlog(LIMIT)
    for connection in connections:
        made.add(connection, 0, 0.0)
    # shows what a full buffer is
    made.look(dict.fromkeys(connections, FULL), 0, 0.0)
    made.look(dict.fromkeys(connections, 0), 0, 0.0)
    return made


def test_nobody_is_ended_who_has_drained():
    found = backlog(1, 2)
    found.look({1: FULL // 4, 2: 0}, 10 * LIMIT, 5.0)
    assert found.slowest(0.0, 5.0) == []


def test_who_has_stopped_is_ended_at_once():
    found = backlog(1, 2)
    found.look({1: FULL, 2: FULL}, 100, 1.0)
    found.look({1: FULL, 2: FULL - 10}, LIMIT, 1.2)
    assert found.slowest(1.2, 1.2) == [1]
    # the other one reads, and has a moment
    assert found.slowest(1.2, 1.2) == []
    assert found.slowest(1.2, 1.4) == [2]
    assert found.slowest(1.2, 9.0) == []


def test_who_reads_has_a_moment_to_drain():
    found = backlog(1)
    found.look({1: FULL}, 10 * LIMIT, 0.001)
    assert found.slowest(0.001, 0.05) == []
    found.look({1: FULL - 50}, 10 * LIMIT, 0.09)
    assert found.slowest(0.001, 0.09) == []
    found.look({1: 0}, 10 * LIMIT, 0.12)
    assert found.slowest(0.001, 0.12) == []


@pytest.mark.parametrize("count", [2, 40, 1000])
def test_all_that_stopped_together_are_ended_together(count):
    """What they hold is the same memory, and a thousand of them take no longer than one."""
    found = backlog(*range(count), count)
    found.look(dict.fromkeys(range(count), FULL) | {count: 0}, LIMIT, 1.0)
    found.look(dict.fromkeys(range(count), FULL) | {count: 0}, 2 * LIMIT, 2.0)
    assert found.slowest(2.0, 2.0) == [*range(count)]
    assert list(found.connections) == [count]


@pytest.mark.parametrize("seed", range(5))
def test_one_after_the_other_the_slowest_first(seed):
    rng = random.Random(seed)
    stopped_at = {c: c * LIMIT // 4 for c in rng.sample(range(1, 100), 8)}
    found = backlog(*stopped_at)
    end = 30 * LIMIT
    for sent in range(0, end, LIMIT // 16):
        queued = {c: 0 if sent < at else FULL for c, at in stopped_at.items()}
        found.look(queued, sent, sent / LIMIT)
    ended = []
    while slow := found.slowest(end / LIMIT, end / LIMIT):
        ended += slow
    assert ended == sorted(stopped_at, key=stopped_at.__getitem__)


def test_who_has_stopped_is_ended_before_who_reads_slowly():
    """Whoever has been behind for longer: the one that has stopped keeps what it holds."""
    found = backlog(1, 2)
    rng = random.Random(3)
    for step in range(400):
        queued = {1: rng.randrange(150, 200), 2: 0 if step < 200 else FULL}
        found.look(queued, step * 100, step / 100)
    assert found.slowest(4.0, 4.0) == [2]


def test_of_those_that_read_the_one_that_is_behind_for_longest_is_ended():
    found = backlog(1, 2)
    rng = random.Random(5)
    for step in range(100):
        queued = {1: rng.randrange(150, 200), 2: rng.randrange(150, 200) if step > 10 else 0}
        found.look(queued, step * LIMIT, step / 100)
    assert found.slowest(0.9, 0.99) == []
    assert found.slowest(0.8, 0.99) == [1]


def test_what_has_gone_is_forgotten():
    found = backlog(1, 2)
    found.look({2: FULL}, LIMIT, 0.1)
    assert list(found.connections) == [2]
    found.add(1, LIMIT, 0.1)  # it came again
    found.add(2, LIMIT, 0.1)  # it was there
    found.look({1: 5, 2: FULL}, 2 * LIMIT, 0.2)
    assert found.slowest(0.0, 0.3) == [2]
    found.look({}, 2 * LIMIT, 0.3)
    assert not list(found.connections)


def test_looks_are_rare_unless_much_waits_and_is_sent():
    found = backlog(1)
    little, much, some = LIMIT // 4, LIMIT // 4 + 1, LIMIT // 64
    assert not found.wants_look(little, some, 0.9)
    assert found.wants_look(0, 0, 1.0)
    assert found.wants_look(much, some, 0.006)
    assert not found.wants_look(much, some - 1, 0.006)
    assert not found.wants_look(much, some, 0.004)
