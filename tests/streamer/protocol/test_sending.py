"""Messages of many frames, sent and received in one call or one by one."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import random

import numpy as np
import pytest
import zmq

from streamer.protocol.transport import frames as receiving
from streamer.protocol.transport import frames as sending
from streamer.protocol.transport.frames import LIBZMQ
from tests.waiting import DEADLINE

CASES = [
    [[b"topic", b"header"]],
    [[b"topic", b"header", b"abc", b"", b"0123456789" * 100], [b"alone"], [b"", b"x", b""]],
    [[b"topic", b"a" * (1 << 20), memoryview(b"b")]],
]


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("messages", CASES)
def test_frames_arrive_as_they_are(known, messages, monkeypatch):
    if known:
        assert not LIBZMQ.missing
    else:
        monkeypatch.setattr(LIBZMQ, "missing", ["zmq_msg_recv"])
    context = zmq.Context()
    try:
        here, there = context.socket(zmq.PAIR), context.socket(zmq.PAIR)
        here.bind("inproc://frames")
        there.connect("inproc://frames")
        for _ in range(2):
            sending.send_all(here, messages)
            for message in messages:
                assert there.poll(DEADLINE * 1000)
                assert there.recv_multipart() == [*map(bytes, message)]
    finally:
        context.destroy(linger=0)


@pytest.mark.parametrize("known", [True, False])
def test_frames_are_sent_from_where_they_lie(known, monkeypatch):
    if not known:
        monkeypatch.setattr(LIBZMQ, "missing", ["zmq_msg_recv"])
    arrays = [np.arange(size, dtype=np.uint8) for size in (0, 1, 200, 7)]
    table = np.array([(a.ctypes.data, a.size) for a in arrays], np.int64)
    placed = [
        sending.Placed(table.ctypes.data, 4, arrays),
        sending.Placed(table.ctypes.data + 16, 2, arrays),
    ]
    frames = [a.tobytes() for a in arrays]
    large = random.Random(1).randbytes(100_000)
    messages = [[b"a", placed[0]], [placed[1]], [b"b", large, placed[1], b"c"], [b"", large]]
    want = [[b"a", *frames], frames[1:3], [b"b", large, *frames[1:3], b"c"], [b"", large]]
    with router_and_dealer("inproc://placed") as (router, dealer):
        sending.send_all(dealer, messages)
        for message in want:
            assert router.poll(DEADLINE * 1000)
            assert router.recv_multipart() == [b"me", *message]


def test_views_of_frames_create_no_types():
    # types are freed by a garbage collection only, and frames have thousands of sizes
    meta = type(ctypes.c_char * 1)

    def array_types():
        return sum(type(one) is meta for one in gc.get_objects())

    arrays = [np.full(size, size % 251, np.uint8) for size in (0, *range(7_000, 7_200))]
    table = np.array([(a.ctypes.data, a.size) for a in arrays], np.int64)
    placed = sending.Placed(table.ctypes.data, len(arrays), (arrays, table))
    gc.collect()
    before = array_types()
    views = placed.views()
    assert array_types() == before
    assert views == placed.frames() == [a.tobytes() for a in arrays]
    assert {view.format for view in views} == {"B"}


def test_what_cannot_be_sent_is_said():
    context = zmq.Context()
    try:
        alone = context.socket(zmq.PUSH)
        with pytest.raises(zmq.Again):
            sending.send_all(alone, [[b"a", b"b"], [b"c"]])
    finally:
        context.destroy(linger=0)


@contextlib.contextmanager
def router_and_dealer(endpoint="tcp://127.0.0.1:*"):
    context = zmq.Context()
    try:
        router, dealer = context.socket(zmq.ROUTER), context.socket(zmq.DEALER)
        router.bind(endpoint)
        dealer.routing_id = b"me"
        dealer.connect(router.last_endpoint)
        yield router, dealer
    finally:
        context.destroy(linger=0)


def collect(router, count, **limits):
    found = []
    while len(found) < count:
        assert router.poll(DEADLINE * 1000)
        found += receiving.receive(router, **limits)
    return found


@pytest.mark.parametrize("known", [True, False])
def test_messages_are_received_as_they_are(known, monkeypatch):
    if not known:
        monkeypatch.setattr(LIBZMQ, "missing", ["zmq_msg_recv"])
    rng = random.Random(3)
    sent = [
        [rng.randbytes(rng.choice((0, 1, 30, 5_000, 300_000))) for _ in range(rng.randrange(1, 14))]
        for _ in range(60)
    ]
    with router_and_dealer() as (router, dealer):
        assert receiving.receive(router, messages=4, frames=3, size=100) == []
        for message in sent:
            dealer.send_multipart(message)
        found = collect(router, len(sent), messages=7, frames=9, size=1_000_000)
        assert receiving.receive(router, messages=4, frames=3, size=100) == []
    # what was received outlives the socket
    assert [[*map(bytes, frames)] for frames in found] == [[b"me", *m][:9] for m in sent]
    kept = [frames[-1] for frames in found]
    del found
    assert [*map(bytes, kept)] == [[b"me", *m][:9][-1] for m in sent]


@pytest.mark.parametrize("known", [True, False])
def test_no_more_is_received_than_asked_for(known, monkeypatch):
    if not known:
        monkeypatch.setattr(LIBZMQ, "missing", ["zmq_msg_recv"])
    # what is sent inside a process is there at once
    with router_and_dealer("inproc://limits") as (router, dealer):
        for _ in range(10):
            dealer.send_multipart([b"x" * 100] * 3)
        assert len(receiving.receive(router, messages=2, frames=9, size=10_000)) == 2
        assert len(receiving.receive(router, messages=9, frames=9, size=500)) == 2
        assert len(collect(router, 6, messages=9, frames=1, size=10_000)) == 6
