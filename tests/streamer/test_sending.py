"""Messages of many frames, sent in one call or one by one."""

from __future__ import annotations

import pytest
import zmq

from streamer.daemon import sending

CASES = [
    [[b"topic", b"header"]],
    [[b"topic", b"header", b"abc", b"", b"0123456789" * 100], [b"alone"], [b"", b"x", b""]],
    [[b"topic", b"a" * (1 << 20), memoryview(b"b")]],
]


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("messages", CASES)
def test_frames_arrive_as_they_are(known, messages, monkeypatch):
    if known:
        assert sending._zmq_send(), "libzmq's zmq_send was not found"
    else:
        monkeypatch.setattr(sending, "_zmq_send", lambda: 0)
    context = zmq.Context()
    try:
        here, there = context.socket(zmq.PAIR), context.socket(zmq.PAIR)
        here.bind("inproc://frames")
        there.connect("inproc://frames")
        for _ in range(2):
            sending.send_all(here, messages)
            for message in messages:
                assert there.poll(10_000)
                assert there.recv_multipart() == [*map(bytes, message)]
    finally:
        context.destroy(linger=0)


def test_what_cannot_be_sent_is_said():
    context = zmq.Context()
    try:
        alone = context.socket(zmq.PUSH)
        with pytest.raises(zmq.Again):
            sending.send_all(alone, [[b"a", b"b"], [b"c"]])
    finally:
        context.destroy(linger=0)
