"""The pulls of a subscriber that heals itself: from where on, how far, and what is passed over."""

from __future__ import annotations

import random

import msgpack
import pytest

from streamer.client import Cursor, Reset
from streamer.daemon.core.heads import Heads
from tests.healing_kit import STREAM, Consumer, Daemon, heal
from tests.stored_batches import Batches


def test_what_came_while_it_healed_needs_no_pull_of_its_own():
    daemon = Daemon(random.Random(6))
    consumer = Consumer(["read"])
    daemon.beat()
    consumer.core.take(daemon.feed.pop())
    for _ in range(3):
        daemon.commit()
    first, _, third = (frames for frames in daemon.feed if frames[0] == b"read.")
    daemon.feed.clear()
    for frames in (first, third):
        consumer.core.take(frames)
    daemon.serve(consumer.core)
    for _ in range(4):
        daemon.commit()
    while daemon.feed:
        consumer.core.take(daemon.feed.popleft())
    while daemon.sync:
        consumer.core.answer(daemon.sync.popleft(), daemon.now)
    consumer.take()
    assert not consumer.core.healing
    assert consumer.got == daemon.want(["read"])
    assert consumer.core.pull._number == 1


def test_a_pull_that_has_not_come_as_far_as_was_missing_goes_on():
    """The serving process may see a commit later than the feed said it."""
    daemon = Daemon(random.Random(6))
    consumer = Consumer(["read"], Cursor(STREAM, 0))
    for _ in range(3):
        daemon.commit()
    daemon.feed.clear()
    daemon.serve(consumer.core)
    daemon.see, see = lambda: None, daemon.see
    daemon.commit()
    daemon.beat()
    daemon.feed.clear()
    consumer.core._heal(4)
    while daemon.sync:
        consumer.core.answer(daemon.sync.popleft(), daemon.now)
    assert consumer.core.healing
    see()
    daemon.now += 1
    daemon.serve(consumer.core)
    while daemon.sync:
        consumer.core.answer(daemon.sync.popleft(), daemon.now)
    consumer.take()
    assert not consumer.core.healing
    assert consumer.got == daemon.want(["read"])


def test_what_an_earlier_daemon_said_is_passed_over():
    daemon = Daemon(random.Random(7))
    consumer = Consumer(["read", "status"])
    daemon.beat()
    daemon.commit()
    daemon.end()
    late = [frames for frames in daemon.feed if frames[0] in (b"status.", b"read.")]
    while daemon.feed:
        consumer.core.take(daemon.feed.popleft())
    daemon.start()
    daemon.beat()
    while daemon.feed:
        consumer.core.take(daemon.feed.popleft())
    consumer.take()
    got, others = consumer.got[:], consumer.others[:]
    for frames in late:
        consumer.core.take(frames)
    consumer.take()
    assert (consumer.got, consumer.others) == (got, others)
    assert (consumer.core.state, consumer.core.epoch) == ("running", 2)


def test_what_an_earlier_stream_said_is_not_taken_for_the_new_one():
    daemon = Daemon(random.Random(7))
    for _ in range(9):
        daemon.commit()
    daemon.beat()
    old = daemon.feed.pop()
    daemon.feed.clear()
    daemon.stream, daemon.records, daemon.epoch = "e" * 16, [], 5
    daemon.batches = Batches(9)
    daemon.start()
    for _ in range(4):
        daemon.commit()
    daemon.feed.clear()
    consumer = Consumer(["read"], Cursor("", 0))
    daemon.serve(consumer.core)
    while daemon.sync:
        consumer.core.answer(daemon.sync.popleft(), daemon.now)
    consumer.core.take(old)
    heal(daemon, consumer)
    assert consumer.got == daemon.want(["read"])
    assert consumer.cursor == Cursor("e" * 16, 4)


def test_heads_of_the_daemon_and_of_sync_agree():
    daemon = Daemon(random.Random(5))
    for _ in range(9):
        daemon.commit()
    heads = Heads()
    for record in daemon.records:
        heads.take(record.at, record.prev)
    assert heads.all() == {t: at for t, at in daemon._feed.heads.items() if at}


@pytest.mark.parametrize("damaged", [set(), {12, 13, 18}])
def test_a_topic_without_messages_does_not_hold_back_a_pull(damaged):
    """Whoever is stopped in the middle of it goes on there, also once the start has expired."""
    daemon = Daemon(random.Random(3))
    daemon.damaged = damaged
    for _ in range(30):
        daemon.commit()
    daemon.feed.clear()
    topics = ("read", "settled")
    consumer = Consumer(topics, Cursor(STREAM, 0))
    daemon.serve(consumer.core)
    while consumer.got[-1:] != [("read", 20)]:
        consumer.core.answer(daemon.sync.popleft(), daemon.now)
        consumer.take()
    # on which topics something is missing is known at the end
    held = 10 if damaged else 19
    assert consumer.cursor == Cursor(STREAM, held, {"read": 20})
    daemon.oldest = held + 1
    daemon.see()
    daemon.forget()
    consumer.restart()
    heal(daemon, consumer)
    assert not any(isinstance(other, Reset) for other in consumer.others)
    assert consumer.got == [one for one in daemon.want(topics) if one[1] not in damaged]


def test_a_pull_that_is_asked_for_again_goes_on_where_it_was():
    daemon = Daemon(random.Random(3))
    for _ in range(30):
        daemon.commit()
    daemon.feed.clear()
    consumer = Consumer(("read", "settled"), Cursor(STREAM, 0))
    daemon.serve(consumer.core)
    while consumer.got[-1:] != [("read", 20)]:
        consumer.core.answer(daemon.sync.popleft(), daemon.now)
        consumer.take()
    daemon.forget()
    daemon.now += 10
    consumer.core.tick(daemon.now)
    stop, pull = (msgpack.unpackb(frames[0]) for frames in consumer.core.pull.requests)
    assert (stop["type"], pull["type"], pull["after"]) == ("stop", "pull", 19)
