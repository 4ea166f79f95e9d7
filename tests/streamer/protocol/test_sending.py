"""Messages by libzmq's own functions: sent, received and counted as they are, or not at all."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import random
import signal
import threading
from ctypes import CFUNCTYPE, c_int, c_size_t, c_void_p

import numpy as np
import pytest
import zmq

from streamer.protocol.transport import frames as transport
from streamer.protocol.transport.frames import (
    FRAME_BYTES,
    LIBZMQ,
    LIBZMQ_MEMORY,
    MESSAGE_BYTES,
    SMALL_BYTES,
    Copier,
    UnsentBytes,
    send_all,
)
from streamer.protocol.wire import ISA_L
from tests.reference import crc32c as definition
from tests.waiting import DEADLINE, until

CASES = [
    [[b"topic", b"header"]],
    [[b"topic", b"header", b"abc", b"", b"0123456789" * 100], [b"alone"], [b"", b"x", b""]],
    [[b"topic", b"a" * (1 << 20), memoryview(b"b")]],
]


@pytest.fixture(params=[True, False])
def known(request, monkeypatch):
    """Whether all functions of libzmq are there."""
    assert not LIBZMQ.missing
    if not request.param:
        monkeypatch.setattr(LIBZMQ, "missing", ["zmq_msg_recv"])
    return request.param


@contextlib.contextmanager
def connected(bound, connecting, endpoint="tcp://127.0.0.1:*"):
    """Two sockets of these kinds; the second one is called "me"."""
    context = zmq.Context()
    try:
        here, there = context.socket(bound), context.socket(connecting)
        here.bind(endpoint)
        there.routing_id = b"me"
        there.connect(here.last_endpoint)
        yield here, there
    finally:
        context.destroy(linger=0)


def router_and_dealer(endpoint="tcp://127.0.0.1:*"):
    return connected(zmq.ROUTER, zmq.DEALER, endpoint)


def pair(endpoint="tcp://127.0.0.1:*"):
    return connected(zmq.PAIR, zmq.PAIR, endpoint)


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize("messages", CASES)
def test_frames_arrive_as_they_are(messages):
    with pair("inproc://frames") as (here, there):
        for _ in range(2):
            transport.send_all(here, messages)
            for message in messages:
                assert there.poll(DEADLINE * 1000)
                assert there.recv_multipart() == [*map(bytes, message)]


@pytest.mark.usefixtures("known")
def test_frames_are_sent_from_where_they_lie():
    arrays = [np.arange(size, dtype=np.uint8) for size in (0, 1, 200, 7)]
    table = np.array([(a.ctypes.data, a.size) for a in arrays], np.int64)
    placed = [
        transport.Placed(table.ctypes.data, 4, 208, arrays),
        transport.Placed(table.ctypes.data + 16, 2, 201, arrays),
    ]
    assert [transport.measure([b"a", frames]) for frames in placed] == [(209, 5), (202, 3)]
    frames = [a.tobytes() for a in arrays]
    large = random.Random(1).randbytes(100_000)
    messages = [[b"a", placed[0]], [placed[1]], [b"b", large, placed[1], b"c"], [b"", large]]
    want = [[b"a", *frames], frames[1:3], [b"b", large, *frames[1:3], b"c"], [b"", large]]
    with router_and_dealer("inproc://placed") as (router, dealer):
        transport.send_all(dealer, messages)
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
    placed = transport.Placed(
        table.ctypes.data, len(arrays), int(table[:, 1].sum()), (arrays, table)
    )
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
            transport.send_all(alone, [[b"a", b"b"], [b"c"]])
    finally:
        context.destroy(linger=0)


def collect(router, count, **limits):
    found = []
    while len(found) < count:
        assert router.poll(DEADLINE * 1000)
        found += transport.receive(router, **limits)
    return found


@pytest.mark.usefixtures("known")
def test_messages_are_received_as_they_are():
    rng = random.Random(3)
    sent = [
        [rng.randbytes(rng.choice((0, 1, 30, 5_000, 300_000))) for _ in range(rng.randrange(1, 14))]
        for _ in range(60)
    ]
    with router_and_dealer() as (router, dealer):
        assert transport.receive(router, messages=4, frames=3, size=100) == []
        for message in sent:
            dealer.send_multipart(message)
        found = collect(router, len(sent), messages=7, frames=9, size=1_000_000)
        assert transport.receive(router, messages=4, frames=3, size=100) == []
    # what was received outlives the socket
    assert [[*map(bytes, frames)] for frames in found] == [[b"me", *m][:9] for m in sent]
    kept = [frames[-1] for frames in found]
    del found
    assert [*map(bytes, kept)] == [[b"me", *m][:9][-1] for m in sent]


@pytest.mark.usefixtures("known")
def test_no_more_is_received_than_asked_for():
    # what is sent inside a process is there at once
    with router_and_dealer("inproc://limits") as (router, dealer):
        for _ in range(10):
            dealer.send_multipart([b"x" * 100] * 3)
        assert len(transport.receive(router, messages=2, frames=9, size=10_000)) == 2
        assert len(transport.receive(router, messages=9, frames=9, size=500)) == 2
        assert len(collect(router, 6, messages=9, frames=1, size=10_000)) == 6


def taken(copier, socket, count):
    found = []
    while len(found) < count:
        assert socket.poll(DEADLINE * 1000)
        while (message := copier.take()) is not None:
            found.append(message)
    return found


def test_messages_are_taken_as_they_are(known):
    rng = random.Random(5)
    sent = [
        [rng.randbytes(rng.choice((0, 1, 30, 33, 5_000))) for _ in range(number)]
        for number in [*range(1, 10)] * 6
    ]
    sent[20][-1:] = [rng.randbytes(300_000), b""]
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


@pytest.mark.usefixtures("known")
def test_too_many_frames_are_none():
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


@pytest.mark.usefixtures("known")
def test_a_closed_socket_is_an_error():
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


SOCKET = np.uint64(1)


class Library:
    """Six functions of libzmq on ``messages``; a few calls to receive fail, from ``end`` on all."""

    def __init__(self, messages, rng, end):
        self._frames = [(frame, n + 1 < len(m)) for m in messages for n, frame in enumerate(m)]
        self._rng = rng
        self._end = min(end, len(self._frames))
        self._rate = rng.choice((0, 0.3))
        self.taken = 0
        self.held = {}
        self.wrong = []
        kept = (
            CFUNCTYPE(c_int, c_void_p)(self._init),
            CFUNCTYPE(c_int, c_void_p, c_void_p, c_int)(self._receive),
            CFUNCTYPE(c_int, c_void_p)(self.close),
            CFUNCTYPE(c_void_p, c_void_p)(lambda at: ctypes.addressof(self.held[at][0])),
            CFUNCTYPE(c_size_t, c_void_p)(lambda at: len(self.held[at][1])),
            CFUNCTYPE(c_int, c_void_p)(lambda at: self.held[at][2]),
        )
        self._kept = kept

    def api(self):
        """Addresses as the kernels take them: these functions in the place of libzmq's."""
        addresses = LIBZMQ.addresses.copy()
        own = [ctypes.cast(function, c_void_p).value for function in self._kept]
        addresses[: len(own)] = own
        return addresses

    @property
    def ended(self):
        return self.taken == self._end

    def _init(self, at):
        if at in self.held:
            self.wrong.append("made twice")
        self.held[at] = None
        return 0

    def _receive(self, at, socket, flags):
        if self.ended or self._rng.random() < self._rate:
            return -1
        frame, more = self._frames[self.taken]
        self.taken += 1
        self.held[at] = ctypes.create_string_buffer(frame, len(frame) + 1), frame, int(more)
        return len(frame)

    def close(self, at):
        if self.held.pop(at, 0) == 0:
            self.wrong.append("closed, but not made")
        return 0


def case(seed):
    rng = random.Random(seed)
    sizes = (0, 1, 8, 33)
    messages = [
        [rng.randbytes(rng.choice(sizes)) for _ in range(rng.choice((1, 2, 4, 7)))]
        for _ in range(rng.randrange(1, 5))
    ]
    library = Library(messages, rng, rng.choice((99, rng.randrange(9))))
    return messages, library, rng.choice((1, 3, 5))


def whole(messages, taken):
    """How many messages have come to their end."""
    ends = np.cumsum([len(message) for message in messages])
    return int(np.searchsorted(ends, taken, side="right"))


@pytest.mark.parametrize("seed", range(30))
def test_copied(seed):
    messages, library, most = case(seed)
    api = library.api()
    storage, sizes = np.empty((most + 1) * MESSAGE_BYTES, np.uint8), np.empty(most, np.int64)
    told = np.zeros(2, np.int64)
    found = []
    while not library.ended:
        block = transport._take(api, np.uint64(0), SOCKET, storage, sizes, told)
        count = int(told[0])
        if count >= 0:
            places = np.cumsum([0, *((sizes[:count] + 7) // 8 * 8)]).tolist()
            data = block.tobytes()
            found.append([data[a : a + n] for a, n in zip(places, sizes[:count], strict=False)])
    assert (library.wrong, library.held) == ([], {})
    expected = [m if len(m) <= most else [] for m in messages[: whole(messages, library.taken)]]
    # one that never came to its end is none
    assert found in (expected, [*expected, []])


NO_TEXTS = np.zeros((0, 2, transport._TEXT_BYTES), np.uint8)


@pytest.mark.parametrize("seed", range(30))
def test_received(seed):
    messages, library, most = case(seed)
    api = library.api()
    storage = np.empty((2 * most + 1) * MESSAGE_BYTES, np.uint8)
    where, sizes = np.empty(2 * most, np.uint64), np.empty(2 * most, np.int64)
    counts = np.zeros(2, np.int64)
    found = []
    while not library.ended:
        arrays = storage, where, sizes, counts, transport._PROPERTIES, NO_TEXTS
        given = transport._receive(api, SOCKET, *arrays, most, 1 << 20)
        at = 0
        for count in counts[:given].tolist():
            places = range(at, at + count)
            found.append([ctypes.string_at(int(where[i]), int(sizes[i])) for i in places])
            for i in places:
                library.close(storage.ctypes.data + MESSAGE_BYTES * i)
            at += count
    assert (library.wrong, library.held) == ([], {})
    assert found == [m[:most] for m in messages[: whole(messages, library.taken)]]


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
        rng, count = random.Random(seed), UnsentBytes()
        with pair("inproc://unsent") as (own, reader):
            for _ in range(300):
                frames = [rng.randbytes(rng.choice([0, 32, 33, 5000])) for _ in range(4)]
                send_all(own, [frames], count)
                assert reader.recv_multipart() == frames
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
