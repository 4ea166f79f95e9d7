"""What a subscriber makes of the feed, without a socket: gaps, restarts, other streams, silence."""

from __future__ import annotations

import random

import msgpack
import numpy as np
import pytest

from streamer.client.core.subscriber import SubscriberCore
from streamer.client.messages import Beat, Gap, Intervals, NewEpoch, NewStream, Status
from streamer.protocol.payloads import encode_feed, encode_notice
from streamer.protocol.wire import seal

ONE, OTHER = "1" * 16, "2" * 16
ORIGIN = {"batch": 0, "base": 0, "producer": "p", "producer_epoch": 1, "producer_seq": 1}
ORIGIN |= {"version_before": 1, "version": 1, "k": 11}
RUN = {"read": 0, "start": 0, "end": 11, "windows": 1}
KINDS = {"read": np.uint32, "start": np.int64, "end": np.int64, "windows": np.int64}


def head(topic, at, epoch=1, stream=ONE):
    return {"v": 2, "topic": f"{topic}.", "stream": stream, "epoch": epoch, "at": at, "time": 5}


def mismatch(at, prev, *, topic="mismatch", surplus=None, more=None, **stamp):
    columns = {name: np.array([RUN[name]], kind) for name, kind in KINDS.items()} | (surplus or {})
    header = head(topic, at, **stamp) | ORIGIN | {"prev": prev} | (more or {})
    if topic == "match":
        columns["target"] = np.array([0xFFFFFFFF], np.uint32)
    return encode_feed(topic, header, msgpack.packb(["a"]), columns)


def beat(at, heads, state="running", more=None, **stamp):
    wire = {f"{topic}.": last for topic, last in heads.items()}
    fields = {"heads": wire, "state": state, "totals": {"reads": 1}}
    return encode_notice("beat", head("beat", at, **stamp) | fields | (more or {}))


def status(state, at, heads, **stamp):
    fields = {"heads": heads, "status": {"state": state, "totals": {}}}
    return encode_notice("status", head("status", at, **stamp) | fields)


def said(core, *messages):
    """What comes out: the number of a message about a batch, anything else as it is."""
    for frames in messages:
        core.take(frames)
    out = []
    while core.ready:
        message = core.ready.popleft()
        out.append(message.stamp.at if isinstance(message, Intervals) else message)
    return out


def test_a_message_is_new_if_its_record_is():
    core = SubscriberCore(["mismatch"], 5.0)
    assert said(core, mismatch(7, 3)) == [7]  # joined late: what was before is not missed
    assert said(core, mismatch(9, 7), mismatch(9, 7), mismatch(7, 3), mismatch(8, 7)) == [9]
    assert said(core, mismatch(12, 11)) == [Gap("mismatch", 9, 11), 12]
    # a record before the last one is no gap, whatever it is
    assert said(core, mismatch(20, 10)) == [20]
    assert core.gaps == 1


def test_topics_are_told_apart():
    core = SubscriberCore(["match", "mismatch"], 5.0)
    assert said(core, mismatch(2, 0), mismatch(2, 0, topic="match")) == [2, 2]
    assert said(core, mismatch(5, 4, topic="match"), mismatch(5, 2)) == [Gap("match", 2, 4), 5, 5]


def test_a_topic_that_was_not_asked_for_is_not_told():
    core = SubscriberCore(["match"], 5.0)
    assert said(core, mismatch(2, 0), mismatch(9, 7), beat(9, {"match": 0, "mismatch": 9})) == []
    assert core.gaps == 0


@pytest.mark.parametrize("last", ["beat", "status"])
def test_heads_show_a_lost_tail(last):
    core = SubscriberCore(["mismatch"], 5.0)
    assert said(core, mismatch(4, 3)) == [4]
    tail = beat(9, {"mismatch": 8}) if last == "beat" else status("ended", 9, {"mismatch.": 8})
    assert said(core, tail, tail) == [Gap("mismatch", 4, 8)]
    assert said(core, mismatch(8, 6), mismatch(10, 8)) == [10]
    assert core.ended == (last == "status")


def test_heads_are_no_gap_to_whoever_comes_late_nor_go_they_back():
    core = SubscriberCore(["mismatch"], 5.0)
    assert said(core, beat(9, {"mismatch": 8})) == []
    assert said(core, mismatch(12, 11)) == [Gap("mismatch", 8, 11), 12]
    assert said(core, beat(12, {"mismatch": 8})) == []
    assert core.last == {"mismatch": 12}


def test_records_go_on_in_a_new_epoch():
    core = SubscriberCore(["mismatch", "status"], 5.0)
    assert said(core, mismatch(4, 3)) == [4]
    (failed,) = said(core, status("failed", 4, {"mismatch.": 4}))
    assert isinstance(failed, Status)
    assert core.failed
    assert core.ended
    told = said(core, beat(5, {"mismatch": 5}, epoch=2))
    assert told == [NewEpoch(1, 2), Gap("mismatch", 4, 5)]
    assert not core.ended
    assert said(core, mismatch(4, 3), mismatch(7, 5)) == []  # from before the restart
    assert said(core, mismatch(7, 5, epoch=2)) == [7]


def test_everything_is_forgotten_with_another_stream():
    core = SubscriberCore(["mismatch"], 5.0)
    assert said(core, beat(90, {"mismatch": 90}), mismatch(91, 90)) == [91]
    told = said(core, mismatch(3, 2, stream=OTHER), mismatch(5, 4, stream=OTHER))
    assert told == [NewStream(ONE, OTHER), 3, Gap("mismatch", 3, 4), 5]


@pytest.mark.parametrize("first", [mismatch(90, 80, epoch=2), beat(89, {"mismatch": 80}, epoch=2)])
def test_a_stream_that_lost_its_end_is_another_one(first):
    """As after a loss of power without syncs: its numbers come again, with other content."""
    core = SubscriberCore(["mismatch"], 5.0)
    assert said(core, mismatch(90, 80)) == [90]
    assert said(core, first)[0] == NewStream(ONE, ONE)
    assert said(core, mismatch(91, 90, epoch=2))[-1] == 91


def test_silence_counts_only_while_somebody_waits():
    core = SubscriberCore(["mismatch"], 5.0)
    core.wait(100.0)
    assert not core.lost  # nobody was there
    said(core, beat(1, {}))
    core.wait(4.9)
    assert not core.lost
    core.wait(0.2)
    assert core.lost
    said(core, beat(1, {}))
    assert not core.lost
    said(core, status("ended", 1, {}))
    core.wait(100.0)
    assert not core.lost
    assert core.ended


def test_damage_is_missed_like_any_message():
    core = SubscriberCore(["mismatch"], 5.0)
    damaged = [bytes(frame) for frame in mismatch(5, 4)]
    damaged[3] = b"\1\0\0\0"
    assert said(core, mismatch(4, 3), damaged, mismatch(6, 5)) == [4, Gap("mismatch", 4, 5), 6]
    assert core.damaged == 1
    assert core.damage.reason == "checksum"
    assert said(core, []) == []
    assert core.damaged == 2


def test_what_a_later_daemon_adds_is_ignored():
    core = SubscriberCore(["mismatch", "beat", "status"], 5.0)
    surplus = {"score": np.zeros(7, np.int64), "flag": np.zeros(2, np.uint8)}
    more = {"shiny": [1, {"x": 2}], "targets": [[3, "t"]], "sets": [[1, [3], 99, "more"]]}
    frames = mismatch(4, 3, surplus=surplus, more=more)
    assert said(core, frames) == [4]
    # a type that is unknown today, and a fourth thing about a column
    header = msgpack.unpackb(frames[1])
    header["columns"][-1][1] = "float128"
    header["columns"][0].append("phred")
    frames[1] = msgpack.packb(header | {"at": 5, "prev": 4})
    assert said(core, seal([*frames[:-2], b"?" * 5])) == [5]
    # a topic, also among the heads, and totals that are no numbers
    novel = head("novel", 6) | {"anything": [b"x"]}
    assert said(core, seal([b"novel.", msgpack.packb(novel), b"frame"])) == []
    totals = {"reads": 1, "by_barcode": {"a": 1}}
    more = {"published": ["novel.", "read."], "totals": totals, "mood": None}
    (found,) = said(core, beat(6, {"novel": 6, "mismatch": 5}, state="new state", more=more))
    assert isinstance(found, Beat)
    assert found.heads == {"mismatch": 5}
    assert core.published == {"read"}
    assert (core.state, core.damaged, core.gaps) == ("new state", 0, 0)


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_lost_unnoticed_nor_told_twice(seed):
    """Messages dropped, repeated and late, over restarts: all that is not told lies in a gap."""
    rng = random.Random(seed)
    core = SubscriberCore(["mismatch", "match"], 5.0)
    said(core, beat(0, {"mismatch": 0, "match": 0}))
    heads = {"mismatch": 0, "match": 0}
    records = {topic: [] for topic in heads}
    told = {topic: [] for topic in heads}
    missed = {topic: set() for topic in heads}

    def take(frames):
        core.take(frames)
        while core.ready:
            message = core.ready.popleft()
            if isinstance(message, Gap):
                missed[message.topic] |= {*range(message.after + 1, message.until + 1)}
            elif isinstance(message, Intervals):
                told[message.stamp.topic].append(message.stamp.at)

    epoch, late = 1, []
    for at in range(1, 300):
        epoch += rng.random() < 0.02
        for topic in rng.sample(sorted(heads), rng.randint(0, 2)):
            frames = mismatch(at, heads[topic], topic=topic, epoch=epoch)
            heads[topic] = at
            records[topic].append(at)
            fate = rng.random()
            if fate < 0.1:
                late.append(frames)
            elif fate < 0.9:
                for _ in range(1 + (fate > 0.8)):
                    take(frames)
        if rng.random() < 0.1 and late:
            take(late.pop(rng.randrange(len(late))))
        if rng.random() < 0.1:
            take(beat(at, heads, epoch=epoch))
    take(beat(299, heads, epoch=epoch))
    for topic, found in told.items():
        assert found == sorted(set(found))
        assert {*found} <= {*records[topic]}
        assert {*records[topic]} == {*found} | (missed[topic] & {*records[topic]})
        assert not {*found} & missed[topic]
