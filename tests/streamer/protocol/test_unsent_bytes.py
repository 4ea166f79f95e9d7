"""The bytes of sent messages that wait in libzmq."""

from __future__ import annotations

import random
import threading

import pytest
import zmq

from streamer.protocol.transport.frames import (
    FRAME_BYTES,
    LIBZMQ,
    LIBZMQ_MEMORY,
    SMALL_BYTES,
    UnsentBytes,
    send_all,
)
from tests.waiting import DEADLINE, until


@pytest.fixture
def sockets():
    """A socket that publishes, and a function that makes subscribers to all it says."""
    context = zmq.Context()
    feed = context.socket(zmq.XPUB)
    feed.sndhwm = 0
    # else the kernel may take all that is sent here
    feed.sndbuf = 1 << 16
    feed.setsockopt(zmq.XPUB_VERBOSER, 1)
    feed.bind("tcp://127.0.0.1:*")

    made_so_far = []

    def subscriber():
        made = context.socket(zmq.SUB)
        made_so_far.append(made)
        made.rcvhwm = 1
        made.rcvbuf = 4096
        made.connect(feed.last_endpoint)
        made.subscribe(b"")
        assert feed.poll(DEADLINE * 1000)
        assert feed.recv() == b"\1"
        return made

    yield feed, subscriber
    context.destroy(linger=0)


def nothing_waits(count, feed):
    def none():
        feed.poll(1)  # libzmq frees what an ended connection left when it is called
        return count.bytes == 0

    until(none, "freed messages")


def test_what_waits_is_counted_until_it_is_taken(sockets):
    feed, subscriber = sockets
    count, first, second = UnsentBytes(), subscriber(), subscriber()
    assert not count.missing
    assert count.bytes == 0
    frames = [b"t", random.Random(1).randbytes(100_000), b"", b"x" * SMALL_BYTES, b"y" * 33]
    size = 100_000 + 33 + 2 * FRAME_BYTES
    for _ in range(200):
        send_all(feed, [frames], count)
    # the kernel takes some, and a subscriber one
    assert 50 * size < count.bytes <= 200 * size
    for subscribed in (first, second):
        assert count.bytes > 0
        for _ in range(200):
            assert subscribed.poll(DEADLINE * 1000)
            assert subscribed.recv_multipart() == frames
    nothing_waits(count, feed)


def test_shares_are_counted_with_their_messages(sockets):
    feed, subscriber = sockets
    count, made = UnsentBytes(), subscriber()
    # the kernel's buffer and libzmq's are full
    filling = [[b"t", bytes(100_000)]] * 100
    send_all(feed, filling, count)
    before = count.bytes
    send_all(feed, [[b"t", bytes(100), b"s"], [b"t", b"s", bytes(100)]], count, [7_000, 90_000])
    assert count.bytes - before == 2 * (100 + FRAME_BYTES) + 97_000
    for _ in range(102):
        assert made.poll(DEADLINE * 1000)
        made.recv_multipart()
    nothing_waits(count, feed)


def test_an_ended_connection_frees_what_waited_for_it(sockets):
    feed, subscriber = sockets
    count, made = UnsentBytes(), subscriber()
    for _ in range(100):
        send_all(feed, [[b"t", bytes(100_000)]], count)
    assert count.bytes
    made.close(linger=0)
    nothing_waits(count, feed)


def test_messages_that_nobody_gets_are_freed_at_once(sockets):
    feed, _ = sockets
    count = UnsentBytes()
    send_all(feed, [[b"t", bytes(1000)]] * 50, count)
    assert count.bytes == 0


def test_a_frame_that_cannot_be_sent_is_not_counted():
    context = zmq.Context()
    count, lonely = UnsentBytes(), context.socket(zmq.PUSH)
    try:
        with pytest.raises(zmq.Again):
            send_all(lonely, [[bytes(1000)]], count)
        assert count.bytes == 0
    finally:
        context.destroy(linger=0)


def test_several_counts_from_several_threads(sockets):
    _feed, subscriber = sockets
    subscriber().close(linger=0)
    counts = []

    def publish(seed):
        context = zmq.Context()
        own, reader = context.socket(zmq.PAIR), context.socket(zmq.PAIR)
        own.bind("inproc://unsent")
        reader.connect("inproc://unsent")
        rng, count = random.Random(seed), UnsentBytes()
        for _ in range(300):
            frames = [rng.randbytes(rng.choice([0, 32, 33, 5000])) for _ in range(4)]
            send_all(own, [frames], count)
            assert reader.recv_multipart() == frames
        context.destroy(linger=0)
        counts.append(count)

    threads = [threading.Thread(target=publish, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
    assert [count.bytes for count in counts] == [0] * 4


@pytest.mark.parametrize(("library", "name"), [(LIBZMQ_MEMORY, "free"), (LIBZMQ, "zmq_msg_recv")])
def test_without_the_functions_messages_are_sent_uncounted(library, name, sockets, monkeypatch):
    monkeypatch.setattr(library, "missing", [name])
    feed, subscriber = sockets
    count, made = UnsentBytes(), subscriber()
    assert count.missing
    send_all(feed, [[b"t", bytes(1000)]], count)
    assert made.poll(DEADLINE * 1000)
    assert made.recv_multipart() == [b"t", bytes(1000)]
    assert count.bytes == 0
