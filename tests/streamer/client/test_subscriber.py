"""The subscriber: every kind of loss is noticed, and healed beside real daemons."""

from __future__ import annotations

import asyncio
import json
import random
from contextlib import closing, contextmanager

import pytest
import zmq

from streamer import aio
from streamer.client import (
    Beat,
    Cursor,
    Gap,
    Intervals,
    NewEpoch,
    NewStream,
    Producer,
    Status,
    Subscriber,
    Sync,
)
from streamer.client import subscriber as feed_reader
from streamer.client.messages import BatchMessage
from streamer.client.subscriber import topic_names
from streamer.errors import UsageError
from streamer.journal.reader import JournalReader
from tests.daemon_kit import GENOME, process, reads_of, running, settings, wait_for_line
from tests.stored_batches import said
from tests.streamer.client.core.test_subscriber_core import ONE, OTHER, mismatch
from tests.waiting import DEADLINE

pytestmark = pytest.mark.whole


class Clock:
    """Each look takes a hundredth of a second."""

    now = 0.0

    def monotonic(self):
        self.now += 0.01
        return self.now


def test_messages_of_which_nothing_is_said_hold_nobody_beyond_the_deadline(tmp_path, monkeypatch):
    """As those do that wait until what is missing has been pulled."""
    monkeypatch.setattr(feed_reader, "time", Clock())
    looks = []

    def take_one():
        looks.append(None)
        assert len(looks) < 1000
        return True

    endpoint = f"ipc://{tmp_path}/feed"
    with Subscriber(endpoint) as feed:
        monkeypatch.setattr(feed, "_take_one", take_one)
        assert feed.receive(timeout=2) is None
        # what has come is taken although there is no time to wait for it
        looks.clear()
        assert feed.receive(timeout=0) is None
        assert len(looks) > 10

    async def session():
        async with aio.Subscriber(endpoint) as feed:
            monkeypatch.setattr(feed, "_take_one", take_one)
            looks.clear()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0):
                    await feed.receive()

    asyncio.run(session())


def test_beats_are_subscribed_to_last_and_losses_are_noticed(tmp_path):
    """Whoever has heard one beat hears all topics from then on."""
    endpoint = f"ipc://{tmp_path}/feed"
    with zmq.Context() as context, context.socket(zmq.XPUB) as feed:
        feed.linger, feed.rcvtimeo = 0, int(DEADLINE * 1000)
        feed.bind(endpoint)
        with Subscriber(endpoint, ["beat", "mismatch"]) as subscriber:
            subscribed = [feed.recv() for _ in range(3)]
            assert subscribed == [b"\x01mismatch.", b"\x01status.", b"\x01beat."]
            for frames in (
                mismatch(6, 3),
                mismatch(12, 10),
                [b"mismatch."],
                [b"mismatch.", b"\xc1"],
                mismatch(3, 2, stream=OTHER),
            ):
                feed.send_multipart(frames)
            messages = [subscriber.receive(DEADLINE) for _ in range(5)]
            assert messages[1::2] == [Gap("mismatch", 6, 10), NewStream(ONE, OTHER)]
            assert [message.stamp.at for message in messages[::2]] == [6, 12, 3]
            assert (subscriber.gaps, subscriber.damaged) == (1, 2)


def test_beats_and_status_carry_totals(path):
    with (
        running(path, ["feed.beat_seconds=0.05"]) as daemon,
        Subscriber(daemon.endpoints["feed"], ["beat", "status", "match"]) as feed,
    ):
        first = feed.receive(DEADLINE)
        with Producer(daemon.endpoints["ingest"], name="me") as producer:
            producer.send([("a", GENOME[5:50])])
        messages = [first]
        while not any(isinstance(m, Intervals) for m in messages):
            messages.append(feed.receive(DEADLINE))
        origin = messages[-1].origin
        assert (origin.producer, origin.batch, list(origin.names)) == ("me", 0, ["a"])
        assert list(messages[-1].labels.values()) == ["left"]
        while not (isinstance(messages[-1], Beat) and messages[-1].totals["reads"] == 1):
            messages.append(feed.receive(DEADLINE))
        daemon.service.drain("enough")
        states = [m.state for m in feed if isinstance(m, Status)]
    assert states == ["draining", "ended"]


def test_names_of_topics(tmp_path):
    assert topic_names(["read.", "read", "match"]) == ("read", "match")
    with pytest.raises(UsageError, match="unknown topic 'matches'"):
        Subscriber(f"ipc://{tmp_path}/nobody", ["matches"])


TOPICS = ("match", "mismatch", "delta", "read")


@pytest.fixture
def growing(tmp_path):
    return settings(tmp_path, "k = 11")


@contextmanager
def daemon(growing, *more):
    """A daemon with a journal beside its configuration: (process, endpoints)."""
    overrides = [
        "journal.durability=os",
        "journal.directory=journal",
        "feed.beat_seconds=0.1",
        *more,
    ]
    options = [word for override in overrides for word in ("--set", override)]
    with process(["run", "--config", growing, *options]) as child:
        endpoints = json.loads(wait_for_line(child, '"listening"'))
        wait_for_line(child, '"ready"')
        yield child, endpoints


def send(endpoints, seed, batches=5, count=20):
    with Producer(endpoints["ingest"], name=f"lab{seed}") as producer:
        for i in range(batches):
            producer.send(reads_of(GENOME, random.Random(seed * 1000 + i), count))


def subscriber(endpoints, topics=TOPICS, **options):
    options = {"answer_seconds": DEADLINE} | options
    return Subscriber(endpoints["feed"], topics, sync=endpoints["sync"], **options)


class Fold:
    """What the messages say, each once: the frames of columns by (topic, at)."""

    def __init__(self):
        self.seen = {}
        self.others = []

    def take(self, message):
        if not isinstance(message, BatchMessage):
            self.others.append(message)
            return
        key = (message.stamp.topic, message.stamp.at)
        assert key not in self.seen, f"{key} twice"
        names = [column for column, *_ in message.stamp.head["columns"]]
        self.seen[key] = [getattr(message, name).tobytes() for name in names]

    def read(self, feed, at):
        """Until everything up to a record is there."""
        while feed.cursor is None or feed.cursor.at < at:
            message = feed.receive(0.1)
            if message is not None:
                self.take(message)

    def expect(self, folder, topics=TOPICS, after=0):
        with closing(JournalReader(folder / "journal")) as reader:
            records = [r for r in reader.records(0) if r.at > after]
        want = {key: frames[1:] for key, frames in said(records, topics).items()}
        assert self.seen == want
        for topic in topics:
            order = [at for name, at in self.seen if name == topic]
            assert order == sorted(order)

    def nothing_else(self):
        assert not [o for o in self.others if not isinstance(o, NewEpoch | Status | Beat)]


def head(endpoints):
    with Sync(endpoints["sync"], answer_seconds=DEADLINE) as sync:
        return sync.heads().head


def test_a_stopped_subscriber_gets_what_the_feed_dropped(growing, tmp_path, monkeypatch):
    """It does not read while more goes out than waits for it anywhere."""
    monkeypatch.setattr("streamer.client.subscriber._RECEIVE_MESSAGES", 10)
    with daemon(growing, "feed.buffer_bytes=1048576") as (_, endpoints):
        fold = Fold()
        with subscriber(endpoints) as feed:
            assert feed.wait_for_daemon(DEADLINE)
            start = feed.cursor.at
            for seed in range(3):
                send(endpoints, seed, batches=40, count=400)
            fold.read(feed, head(endpoints))
            assert feed._healing.pull._number > 0, "nothing was dropped"
        fold.expect(tmp_path, after=start)
        fold.nothing_else()


def test_a_subscriber_outlives_the_daemon(growing, tmp_path):
    fold = Fold()
    with daemon(growing) as (child, endpoints):
        feed = subscriber(endpoints, cursor=Cursor("", 0))
        send(endpoints, 1)
        fold.read(feed, 2)
        child.kill()
        child.wait(DEADLINE)
    with daemon(growing) as (_, endpoints), feed:
        send(endpoints, 2)
        fold.read(feed, head(endpoints))
    fold.expect(tmp_path)
    fold.nothing_else()
