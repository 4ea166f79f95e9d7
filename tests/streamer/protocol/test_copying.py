"""Messages taken as one block of memory each, with their checksum."""

from __future__ import annotations

import contextlib
import gc
import random
import signal

import numpy as np
import pytest
import zmq

from streamer.protocol.header import ISA_L
from streamer.protocol.transport.frames import LIBZMQ, Copier
from tests.reference import crc32c as definition
from tests.waiting import DEADLINE


@contextlib.contextmanager
def pair(endpoint="tcp://127.0.0.1:*"):
    context = zmq.Context()
    try:
        here, there = context.socket(zmq.PAIR), context.socket(zmq.PAIR)
        here.bind(endpoint)
        there.connect(here.last_endpoint)
        yield here, there
    finally:
        context.destroy(linger=0)


def taken(copier, socket, count):
    found = []
    while len(found) < count:
        assert socket.poll(DEADLINE * 1000)
        while (message := copier.take()) is not None:
            found.append(message)
    return found


@pytest.mark.parametrize("known", [True, False])
def test_messages_are_taken_as_they_are(known, monkeypatch):
    if not known:
        monkeypatch.setattr(LIBZMQ, "missing", ["zmq_msg_recv"])
    rng = random.Random(5)
    sent = [
        [rng.randbytes(rng.choice((0, 1, 30, 33, 5_000, 300_000))) for _ in range(number)]
        for number in [*range(1, 10)] * 6
    ]
    with pair() as (here, there):
        copier = Copier(there, frames=9)
        assert copier.take() is None
        for message in sent:
            here.send_multipart(message)
        found = taken(copier, there, len(sent))
        assert copier.take() is None
    # what was taken outlives the socket
    assert [[*map(bytes, frames)] for frames, _ in found] == sent
    checksums = [definition.crc32c(b"".join(message[:-1])) for message in sent]
    assert all(given in (None, want) for (_, given), want in zip(found, checksums, strict=True))
    if known:
        for frame in (frame for frames, _ in found for frame in frames if frame):
            assert np.frombuffer(frame, np.uint8).ctypes.data % 8 == 0


@pytest.mark.parametrize("known", [True, False])
def test_too_many_frames_are_none(known, monkeypatch):
    if not known:
        monkeypatch.setattr(LIBZMQ, "missing", ["zmq_msg_recv"])
    with pair("inproc://copied") as (here, there):
        copier = Copier(there, frames=3)
        for count in (3, 4, 100, 1):
            here.send_multipart([b"abc"] * count)
        found = [frames for frames, _ in taken(copier, there, 4)]
    assert [[*map(bytes, frames)] for frames in found] == [[b"abc"] * 3, [], [], [b"abc"]]


def test_without_a_fast_checksum_there_is_none(monkeypatch):
    monkeypatch.setattr(ISA_L, "missing", ["crc32_iscsi"])
    with pair("inproc://unchecked") as (here, there):
        here.send_multipart([b"abc", b"def"])
        (frames, found), *_ = taken(Copier(there, frames=3), there, 1)
    assert ([*map(bytes, frames)], found) == ([b"abc", b"def"], None)


@pytest.mark.parametrize("known", [True, False])
def test_a_closed_socket_is_an_error(known, monkeypatch):
    if not known:
        monkeypatch.setattr(LIBZMQ, "missing", ["zmq_msg_recv"])
    with pair("inproc://closed") as (_, there):
        copier = Copier(there, frames=3)
        there.close()
        with pytest.raises(zmq.ZMQError):
            copier.take()


def test_an_interruption_is_one():
    armed = False

    def interrupt(*_):
        nonlocal armed
        if armed:
            armed = False
            raise KeyboardInterrupt

    def take():
        # a function: Python 3.13.0 does not guard the jump of a loop in a with statement
        while armed:
            copier.take()

    with pair("inproc://interrupted") as (_, there):
        copier = Copier(there, frames=3)
        before = signal.signal(signal.SIGALRM, interrupt)
        gc.disable()  # who listens to it would be interrupted, and that is said elsewhere
        signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
        try:
            for _ in range(100):
                with contextlib.suppress(KeyboardInterrupt):
                    armed = True  # from here on an interruption is one that is waited for
                    take()
        finally:
            armed = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            gc.enable()
            signal.signal(signal.SIGALRM, before)
