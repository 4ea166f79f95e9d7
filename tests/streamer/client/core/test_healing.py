"""A subscriber that heals itself, against the daemon's cores, where messages are lost."""

from __future__ import annotations

import random
from collections import deque

import msgpack
import pytest

from streamer.client import Cursor, Gap, Reset
from streamer.client.core.healing import HealingCore
from streamer.client.messages import BatchMessage, Words
from streamer.daemon.core.feed import FeedCore
from streamer.daemon.core.flows import Pull, Stored, SyncLimits
from streamer.daemon.core.heads import Heads
from streamer.daemon.core.sync import SyncCore
from streamer.daemon.stored_messages import StoredMessages
from streamer.protocol.header import seal
from tests.stored_batches import STORED, Batches

STREAM = "00112233445566ff"
TOTALS = {"reads": 0}


class Daemon:
    """Feed and sync of one journal; messages to a subscriber wait in ``feed`` and ``sync``."""

    def __init__(self, rng: random.Random, drop: float = 0.0, pull_bytes: int = 1 << 20) -> None:
        self.rng = rng
        self.limits = SyncLimits(4, 4, pull_bytes, memory_bytes=1 << 30)
        self.drop = drop
        self.now = 50.0
        self.batches = Batches(rng.randrange(1 << 30))
        self.stream = STREAM
        self.epoch = 0
        self.oldest = 1
        self.records: list[StoredMessages] = []
        self.damaged: set[int] = set()
        self.dropped = 0
        self.start()

    def start(self) -> None:
        """Begin an epoch: what was under way is lost."""
        self.epoch += 1
        heads = self.batches.heads.all()
        self._feed = FeedCore(
            stream=self.stream, epoch=self.epoch, published=STORED, beat_seconds=1,
            at=len(self.records), heads=heads,
        )  # fmt: skip
        self._feed.subscriptions.add(b"", 0)
        self._core = SyncCore(self.limits)
        self.feed: deque[list[bytes]] = deque()
        self.sync: deque[list[bytes]] = deque()
        self.see()
        self._say(self._feed.announce("running", {"totals": TOTALS}, 1))

    def forget(self) -> None:
        """The subscriber's connections have ended."""
        self._core.gone(b"it")
        self.feed.clear()
        self.sync.clear()

    def see(self) -> None:
        heads = self.batches.heads.all()
        self._core.see(Stored(self.stream, self.epoch, self.oldest, len(self.records), heads))

    def commit(self, rows: int = 3) -> None:
        record = self.batches.record(rows)
        stored = StoredMessages(record, self.stream, self.epoch)
        self.records.append(stored)
        self.see()
        self._say(self._feed.publish([Said(stored)], 1))

    def beat(self) -> None:
        self._say(self._feed.beat(0.0, 1, totals=TOTALS, version=1))

    def end(self) -> None:
        self._say(self._feed.announce("ended", {"totals": TOTALS}, 1))

    def _say(self, messages) -> None:
        for message in messages:
            if self.rng.random() < self.drop:
                self.dropped += 1
            else:
                self.feed.append(message)

    def serve(self, healing: HealingCore) -> None:
        """Take requests, and answer them as far as there is credit."""
        healing.tick(self.now)
        while healing.pull.requests:
            self._core.hear(b"it", healing.pull.requests.popleft(), self.now)
        while (flow := self._core.turn(self.now)) is not None:
            assert isinstance(flow, Pull)
            left = [r for r in self.records[flow.at :] if r.at not in self.damaged]
            if left:
                self._core.give(flow, left[0], self.now)
            else:
                self._core.give_up(flow, self.now)
        self._core.tick(self.now)
        self.sync += [frames for _, frames in self._core.out]
        self._core.out = []

    def want(self, topics, after: int = 0) -> list[tuple[str, int]]:
        return [(t, r.at) for r in self.records[after:] for t in r.prev if t in topics]


class Said:
    """A record as the feed publishes it."""

    def __init__(self, stored: StoredMessages) -> None:
        self.at, self.prev = stored.at, stored.prev
        self._stored = stored

    def message(self, topic, header):
        return seal(self._stored.message(topic)) if topic != "word" else None


def by_topic(got, topics):
    return {topic: [at for name, at in got if name == topic] for topic in topics}


class Consumer:
    """What is had of the messages; ``core`` may be made anew from its cursor."""

    def __init__(self, topics=STORED, cursor=None, buffer_bytes=1 << 20) -> None:
        self.topics = topics
        self.got: list[tuple[str, int]] = []
        self.others: list[object] = []
        self._buffer_bytes = buffer_bytes
        self.cursor = cursor
        self.core = self.made()

    def made(self) -> HealingCore:
        return HealingCore(self.topics, 5.0, self.cursor, self._buffer_bytes)

    def restart(self) -> None:
        """What was not taken yet is lost; the cursor was stored with the last message."""
        self.core = self.made()

    def take(self, most: int = 1 << 30) -> None:
        while most and (message := self.core.next()) is not None:
            if isinstance(message, BatchMessage):
                self.got.append((message.stamp.topic, message.stamp.at))
            else:
                self.others.append(message)
            self.cursor = self.core.cursor
            most -= 1


def heal(daemon: Daemon, consumer: Consumer) -> None:
    """Everything arrives from now on."""
    daemon.drop = 0.0
    for _ in range(20):
        daemon.now += 1
        daemon.beat()
        while daemon.feed:
            consumer.core.take(daemon.feed.popleft())
        daemon.serve(consumer.core)
        while daemon.sync:
            consumer.core.answer(daemon.sync.popleft(), daemon.now)
            daemon.serve(consumer.core)
        consumer.take()
    assert not consumer.core.healing


@pytest.mark.parametrize("seed", range(60))
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


def test_event_words_are_not_healed():
    core = HealingCore(["word"], 5.0, Cursor(STREAM, 0))
    assert "word" not in core._in.last
    assert Words


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
