"""Pulls whose requests are damaged on their way, and resets while live messages go on."""

from __future__ import annotations

import random
from itertools import count

import msgpack
import numpy as np
import pytest

from streamer.client import Cursor, Reset
from streamer.client.core.subscriber import HealingCore, PullCore, Refused
from streamer.daemon.core.sync import Stored, SyncCore, SyncLimits
from streamer.protocol.schema import TOPICS
from streamer.protocol.wire import request, seal, unpack
from tests.healing_kit import STREAM, Consumer, Daemon, heal
from tests.stored_batches import Batches
from tests.streamer.client.test_feed_damage import message

NO_DECISIONS = {c.name: np.zeros(0, c.dtype) for c in TOPICS["decision"].columns}
LIMITS = SyncLimits(4, 4, 1000, 10_000)


def answers(core: SyncCore, request: list[bytes], now: float) -> list[list[bytes]]:
    core.hear(b"it", request, now)
    out, core.out = core.out, []
    return [list(frames) for _, frames in out]


def hear_beat(core: SyncCore, pull: PullCore, now: float) -> None:
    """The daemon has nothing to send, and says so."""
    core.tick(now)
    core.out, out = [], core.out
    for route, frames in out:
        assert route != b"it" or not [*pull.take(frames, now)]


def test_a_pull_with_nothing_to_read_stays_where_silent_ones_make_room():
    sync = SyncCore(SyncLimits(2, 4, 1000, 10_000))
    sync.see(Stored(STREAM, 1, 1, 0, {}))
    pull = PullCore(["read"], count(1), Cursor(STREAM, 0))
    pull.begin(now=0.0)
    for frames in answers(sync, pull.requests.popleft(), 0.0):
        for _ in pull.take(frames, 0.0):
            pass
    fields = {"after": 0, "topics": ["read"], "credit": 9}
    sync.hear(b"silent", request("pull", 1, **fields), 0.0)
    for second in range(1, 12):
        hear_beat(sync, pull, float(second))
        while pull.requests:
            assert not answers(sync, pull.requests.popleft(), float(second))
    sync.hear(b"new", request("pull", 1, **fields), 11.0)
    said = [(route, unpack(frames[0])["type"]) for route, frames in sync.out]
    assert said[:2] == [(b"silent", "refused"), (b"new", "pulling")]


@pytest.mark.parametrize("kind", ["pull", "credit"])
def test_a_damaged_request_is_as_bad_as_a_damaged_answer(kind):
    """Whoever waited for what a lost credit allows would wait for ever."""
    sync = SyncCore(LIMITS)
    sync.see(Stored(STREAM, 1, 1, 0, {}))
    pull = PullCore(["read"], count(1), Cursor(STREAM, 0))
    pull.begin(now=10.0)
    if kind == "credit":
        for frames in answers(sync, pull.requests.popleft(), 10.0):
            pull.take(frames, 10.0)
        assert not pull.overdue(10.5)
        hear_beat(sync, pull, 13.5)
    head, crc = pull.requests.popleft()
    damaged = bytes([*head[:-1], head[-1] ^ 1])
    (refused,) = answers(sync, [damaged, crc], 11.0)
    assert not [*pull.take(refused, 11.0)]
    assert pull.overdue(11.0)
    assert pull.damaged == 1
    pull.begin(now=11.0)
    assert not pull.overdue(11.0)


def test_a_request_that_nobody_understands_is_refused_for_good():
    pull = PullCore(["read"], count(1), Cursor(STREAM, 0))
    pull.begin(now=1.0)
    header = {"v": 2, "type": "refused", "reason": "version", "message": "another version"}
    (refused,) = pull.take(seal([msgpack.packb(header)]), 1.0)
    assert isinstance(refused, Refused)
    assert refused.header["reason"] == "version"
    assert not pull.active


@pytest.mark.parametrize(
    "body",
    [[], [b"read."], [b"beat.", b"\x81\xa1v\x02"], [b"later.", b"\x81\xa1v\x02"], "decision"],
)
def test_a_message_that_is_none_or_was_not_asked_for_is_damage(body):
    if body == "decision":
        body = message("decision", barcodes=[[2, "b"]], columns=NO_DECISIONS)[:-1]
    healing = HealingCore(["read"], 5.0, Cursor(STREAM, 3))
    healing.tick(1.0)
    head = msgpack.packb({"v": 2, "type": "message", "id": 1, "topic": "read."})
    healing.answer(seal([head, *body]), 1.0)
    assert healing.damaged == 1
    assert healing.pull.overdue(1.0)


def test_a_reset_keeps_what_was_had_beyond_it():
    """Live messages of one topic go on while those of another are missing and then too old."""
    daemon = Daemon(random.Random(3))
    consumer = Consumer(["read", "mismatch"], Cursor(STREAM, 0))
    for _ in range(4):
        daemon.commit()
    heal(daemon, consumer)
    for _ in range(8):
        daemon.commit()
    while daemon.feed:
        frames = daemon.feed.popleft()
        if frames[0] != b"mismatch.":
            consumer.core.take(frames)
    consumer.take()
    daemon.oldest = 9
    daemon.see()
    heal(daemon, consumer)
    assert consumer.others == [Reset("too-old", STREAM, 8)]
    assert consumer.got.count(("read", 10)) == 1
    lost = {("mismatch", at) for at in range(5, 9)}
    assert sorted(consumer.got) == sorted({*daemon.want(["read", "mismatch"])} - lost)


def test_silence_counts_from_when_something_was_asked_for():
    """Between two gaps nobody asks, and nothing is answered."""
    daemon = Daemon(random.Random(3))
    consumer = Consumer(["read"])
    core = consumer.core
    for _ in range(3):
        daemon.beat()
        for _ in range(2):
            daemon.commit()
        lost = next(i for i, frames in enumerate(daemon.feed) if frames[0] == b"read.")
        del daemon.feed[lost]
        while daemon.feed:
            core.take(daemon.feed.popleft())
        core.tick(daemon.now)
        assert core.healing
        assert not core.unserved
        core.tick(daemon.now + 4.9)
        assert not core.unserved
        core.tick(daemon.now + 5.1)
        assert core.unserved
        heal(daemon, consumer)
        assert not core.unserved
        daemon.now += 3600
    assert consumer.got == daemon.want(["read"])


@pytest.mark.parametrize("cursor", [None, Cursor("", 0), Cursor(STREAM, 3), Cursor("f" * 16, 40)])
def test_of_what_is_not_stored_nothing_is_asked_for(cursor):
    """Sync would refuse a pull of no topics; the place goes on with the beats."""
    daemon = Daemon(random.Random(3))
    core = HealingCore(["beat", "word"], 5.0, cursor)

    def hear(count):
        for _ in range(count):
            daemon.commit()
        daemon.beat()
        while daemon.feed:
            core.take(daemon.feed.popleft())
            core.tick(daemon.now)
        while core.next() is not None:
            pass
        assert not core.healing
        assert not core.pull.requests

    hear(4)
    assert core.cursor == Cursor(STREAM, 4)
    daemon.stream, daemon.records, daemon.epoch = "e" * 16, [], 0
    daemon.batches = Batches(9)
    daemon.start()
    hear(2)
    assert core.cursor == Cursor("e" * 16, 2)
