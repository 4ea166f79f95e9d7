"""Subscribers that heal themselves, beside real daemons that are stopped, killed and restarted."""

from __future__ import annotations

import json
import random
import signal
from contextlib import closing, contextmanager

import pytest

from streamer.client import (
    Beat,
    Cursor,
    NewEpoch,
    Producer,
    Status,
    Subscriber,
    Sync,
)
from streamer.client.messages import BatchMessage
from streamer.journal.reader import JournalReader
from tests.daemon_kit import GENOME, process, reads_of, settings, wait_for_line
from tests.stored_batches import said
from tests.waiting import DEADLINE

pytestmark = pytest.mark.whole

TOPICS = ("match", "mismatch", "delta", "read")


@pytest.fixture
def path(tmp_path):
    return settings(tmp_path, "k = 11")


@contextmanager
def daemon(path, *more):
    """A daemon with a journal beside its configuration: (process, endpoints)."""
    overrides = [
        "journal.durability=os",
        "journal.directory=journal",
        "feed.beat_seconds=0.1",
        *more,
    ]
    options = [word for override in overrides for word in ("--set", override)]
    with process(["run", "--config", path, *options]) as child:
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


def test_a_stopped_subscriber_gets_what_the_feed_dropped(path, tmp_path, monkeypatch):
    """It does not read while more goes out than waits for it anywhere."""
    monkeypatch.setattr("streamer.client.subscriber._RECEIVE_MESSAGES", 10)
    with daemon(path, "feed.buffer_bytes=1048576") as (_, endpoints):
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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_subscriber_outlives_the_daemon(path, tmp_path, number):
    fold = Fold()
    with daemon(path) as (child, endpoints):
        feed = subscriber(endpoints, cursor=Cursor("", 0))
        send(endpoints, 1)
        fold.read(feed, 2)
        child.send_signal(number)
        assert child.wait(DEADLINE) in (0, -9)
    with daemon(path) as (_, endpoints), feed:
        send(endpoints, 2)
        fold.read(feed, head(endpoints))
    fold.expect(tmp_path)
    fold.nothing_else()
