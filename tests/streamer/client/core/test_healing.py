"""A subscriber that heals itself, against the daemon's cores, where messages are lost."""

from __future__ import annotations

import random

import msgpack
import pytest

from streamer.client import Cursor, Gap, Reset
from tests.healing_kit import STREAM, Consumer, Daemon, by_topic, heal
from tests.stored_batches import STORED, Batches


@pytest.mark.parametrize("seed", range(30))
def test_every_message_comes_once_and_in_order_by_topic(seed):
    rng = random.Random(seed)
    daemon = Daemon(rng, rng.choice((0.01, 0.1, 0.5)), pull_bytes=rng.choice((500, 1 << 20)))
    for _ in range(rng.randrange(20)):
        daemon.commit()
    topics = tuple(rng.sample(STORED, rng.randint(1, 4)))
    start = rng.choice((None, 0, rng.randrange(len(daemon.records) + 1)))
    cursor = None if start is None else Cursor(STREAM, start)
    consumer = Consumer(topics, cursor, buffer_bytes=rng.choice((0, 2000, 1 << 20)))
    daemon.feed.clear()
    begun = cursor
    for _ in range(rng.randrange(20, 200)):
        daemon.now += rng.random()
        action = rng.random()
        if action < 0.4:
            daemon.commit()
        elif action < 0.5:
            daemon.beat()
        elif action < 0.7:
            for _ in range(min(len(daemon.feed), rng.randrange(10))):
                consumer.core.take(daemon.feed.popleft())
                begun = begun or consumer.core.cursor
        elif action < 0.9:
            daemon.serve(consumer.core)
            for _ in range(min(len(daemon.sync), rng.randrange(30))):
                consumer.core.answer(daemon.sync.popleft(), daemon.now)
        elif action < 0.94:
            consumer.take(rng.randrange(8))
        elif action < 0.97 and consumer.cursor is not None:
            consumer.restart()
            daemon.forget()
        elif action < 0.98:
            daemon.start()
        waiting = sum(size for _, size in consumer.core._buffer)
        assert waiting == consumer.core._buffered <= consumer._buffer_bytes
    begun = begun or Cursor(STREAM, len(daemon.records))
    heal(daemon, consumer)
    assert not any(isinstance(other, Gap | Reset) for other in consumer.others)
    got = by_topic(consumer.got, topics)
    assert got == by_topic(daemon.want(topics, begun.at), topics)


def test_nothing_is_pulled_while_nothing_is_missing():
    daemon = Daemon(random.Random(1))
    consumer = Consumer()
    daemon.beat()
    for _ in range(50):
        daemon.commit()
        daemon.beat()
        while daemon.feed:
            consumer.core.take(daemon.feed.popleft())
        consumer.core.tick(daemon.now)
        assert not consumer.core.pull.requests
    consumer.take()
    assert consumer.got == daemon.want(STORED)
    assert consumer.core.cursor == Cursor(STREAM, 50)


def test_a_lost_tail_is_pulled():
    daemon = Daemon(random.Random(2))
    consumer = Consumer(["read"])
    daemon.beat()
    daemon.commit()
    for _ in range(7):
        daemon.commit()
        daemon.feed.pop()
    heal(daemon, consumer)
    assert consumer.got == daemon.want(["read"])


def test_the_end_is_known_once_everything_is_there():
    daemon = Daemon(random.Random(2))
    consumer = Consumer(["read"])
    daemon.beat()
    for _ in range(3):
        daemon.commit()
    kept = [daemon.feed.popleft(), daemon.feed.popleft()]
    daemon.feed.clear()
    daemon.end()
    daemon.feed.extendleft(kept[::-1])
    while daemon.feed:
        consumer.core.take(daemon.feed.popleft())
    assert consumer.core.state == "ended"
    assert not consumer.core.ended
    daemon.serve(consumer.core)
    while daemon.sync:
        consumer.core.answer(daemon.sync.popleft(), daemon.now)
    consumer.take()
    assert consumer.core.ended
    assert consumer.got == daemon.want(["read"])


def test_retention_gives_a_reset_and_goes_on_at_the_oldest():
    daemon = Daemon(random.Random(3))
    for _ in range(20):
        daemon.commit()
    daemon.feed.clear()
    daemon.oldest = 9
    daemon.see()
    consumer = Consumer(["read", "delta"], Cursor(STREAM, 4))
    heal(daemon, consumer)
    assert consumer.others == [Reset("too-old", STREAM, 8)]
    assert consumer.got == daemon.want(["read", "delta"], 8)


def test_another_stream_gives_a_reset_and_begins_with_it():
    daemon = Daemon(random.Random(3))
    for _ in range(6):
        daemon.commit()
    consumer = Consumer(["read"], Cursor("f" * 16, 40))
    heal(daemon, consumer)
    assert consumer.others == [Reset("stream", STREAM, 0)]
    assert consumer.got == daemon.want(["read"])
    assert consumer.cursor == Cursor(STREAM, 6)


def test_a_journal_that_is_replaced_while_it_is_followed():
    daemon = Daemon(random.Random(4))
    consumer = Consumer(["read"])
    daemon.beat()
    for _ in range(5):
        daemon.commit()
    heal(daemon, consumer)
    before = consumer.got[:]
    assert before == daemon.want(["read"])
    daemon.stream, daemon.records, daemon.epoch = "e" * 16, [], 0
    daemon.batches = Batches(9)
    daemon.start()
    for _ in range(3):
        daemon.commit()
    heal(daemon, consumer)
    assert Reset("stream", "e" * 16, 0) in consumer.others
    assert consumer.got == before + daemon.want(["read"])


def test_a_cursor_of_the_future_gives_a_reset():
    daemon = Daemon(random.Random(3))
    for _ in range(6):
        daemon.commit()
    daemon.feed.clear()
    consumer = Consumer(["read"], Cursor(STREAM, 40))
    heal(daemon, consumer)
    daemon.commit()
    heal(daemon, consumer)
    assert consumer.others == [Reset("future", STREAM, 6)]
    assert consumer.got == daemon.want(["read"], 6)


def test_damaged_records_leave_a_gap():
    daemon = Daemon(random.Random(5))
    for _ in range(9):
        daemon.commit()
    daemon.feed.clear()
    daemon.damaged = {3, 4, 9}
    consumer = Consumer(["read"], Cursor(STREAM, 0))
    heal(daemon, consumer)
    assert consumer.others == [Gap("read", 2, 4), Gap("read", 8, 9)]
    assert consumer.got == [one for one in daemon.want(["read"]) if one[1] not in daemon.damaged]
    assert consumer.cursor == Cursor(STREAM, 9)


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
    heads = {}
    for record in daemon.records:
        heads |= dict.fromkeys(record.prev, record.at)
    assert heads == {t: at for t, at in daemon._feed.heads.items() if at}


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
