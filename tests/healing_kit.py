"""The daemon's feed and sync without sockets, and a subscriber that heals itself from them."""

from __future__ import annotations

import random
from collections import deque

from streamer.client.core.subscriber import HealingCore
from streamer.client.messages import BatchMessage
from streamer.daemon.core.feed import FeedCore
from streamer.daemon.core.sync import Pull, Stored, SyncCore, SyncLimits
from streamer.daemon.stored_messages import StoredMessages
from streamer.protocol.wire import seal
from tests.stored_batches import STORED, Batches

STREAM = "00112233445566ff"
TOTALS = {"reads": 0}


class Daemon:
    """Feed and sync of one journal; messages for a subscriber wait in ``feed`` and ``sync``."""

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
        """Begin an epoch; messages in flight are lost."""
        self.epoch += 1
        heads = dict(self.batches.heads)
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
        heads = dict(self.batches.heads)
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
        """Receive requests, and answer as far as there is credit."""
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
    """Collects the messages; ``core`` may be rebuilt from its cursor."""

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
        """Restart: messages not yet taken are lost; the cursor was stored with the last message."""
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
    """From now on, everything arrives."""
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
