"""The clients: the Python module, and one written from docs/protocol.md alone."""

from __future__ import annotations

import os
import random
import threading
import time
from contextlib import contextmanager

import msgpack
import pytest
import zmq
from crc32c import crc32c

from streamer.client import (
    Beat,
    Control,
    DaemonError,
    DaemonSilentError,
    Gap,
    Intervals,
    LostBatchesError,
    NewEpoch,
    NewStream,
    Producer,
    ReadSummaries,
    RefusedError,
    StalledError,
    Status,
    Subscriber,
)
from streamer.client.core.producer import ProducerCore
from streamer.errors import UsageError
from streamer.protocol.feed_messages import encode_feed, encode_notice
from tests.daemon_kit import DEADLINE, GENOME, reads_of, running, sealed

pytestmark = pytest.mark.whole


@pytest.fixture
def nobody(tmp_path):
    return f"ipc://{tmp_path}/nobody"


# ---- from the page alone: zmq and msgpack, nothing of this project ---------------------------


def foreign_client(ingest, feed, reads):
    """Send reads, one batch at a time; the summaries of the feed as {name: matches}."""
    context = zmq.Context()
    context.rcvtimeo = int(DEADLINE * 1000)
    results = context.socket(zmq.SUB)
    results.connect(feed)
    for topic in (b"read.", b"beat."):
        results.subscribe(topic)
    while results.recv_multipart()[0] != b"beat.":
        pass
    out = context.socket(zmq.DEALER)
    out.connect(ingest)
    hello = {"v": 2, "type": "hello", "producer": "foreign", "epoch": 1}
    out.send_multipart(sealed(msgpack.packb(hello)))
    answer = msgpack.unpackb(out.recv_multipart()[0])
    assert (answer["type"], answer["received"]) == ("welcome", 0)
    for seq, read in enumerate(reads, 1):
        frame = msgpack.packb([read])
        header = {"v": 2, "type": "batch", "producer": "foreign", "epoch": 1, "seq": seq}
        header |= {"form": "list"}
        out.send_multipart(sealed(msgpack.packb(header), frame))
        while answer["received"] < seq:
            answer = msgpack.unpackb(out.recv_multipart()[0])
            assert answer["type"] in ("ack", "welcome"), answer
    found = {}
    while len(found) < len(reads):
        *message, seal = results.recv_multipart()
        assert int.from_bytes(seal, "little") == crc32c(b"".join(message))
        topic, header, *frames = message
        if topic != b"read.":
            continue
        header = msgpack.unpackb(header)
        names = msgpack.unpackb(frames[0])
        columns = {c[0]: frame for c, frame in zip(header["columns"], frames[1:], strict=True)}
        for row, name in enumerate(names):
            found[name] = int.from_bytes(columns["matches"][8 * row : 8 * row + 8], "little")
    out.close(linger=0)
    results.close(linger=0)
    context.term()
    return found


def test_client_written_from_the_page(path):
    with running(path) as daemon:
        reads = [["a", GENOME[:50]], ["b", GENOME[100:111]], ["c", "ACG"]]
        found = foreign_client(daemon.endpoints["ingest"], daemon.endpoints["feed"], reads)
    assert found == {"a": 40, "b": 1, "c": 0}


# ---- Producer ------------------------------------------------------------------------------


def test_nobody_there_is_said_soon(nobody):
    with Producer(nobody, answer_seconds=0.3) as producer:
        with pytest.raises(DaemonSilentError, match=r"no answer within 0\.3 s: is the daemon"):
            producer.send([("a", "ACGT")])
        with pytest.raises(DaemonSilentError):
            producer.flush()
        producer.flush = lambda: None  # it is known to fail
    with Control(nobody, answer_seconds=0.3) as control, pytest.raises(DaemonSilentError):
        control.status()
    with pytest.raises(DaemonError, match="is not an endpoint"):
        Producer("tcp://nowhere")


def test_send_waits_for_credit_and_gives_up_in_time(path):
    overrides = ["ingest.memory_bytes=1_048_576", "ingest.max_batch_bytes=300_000"]
    with (
        running(path, overrides) as daemon,
        Producer(daemon.endpoints["ingest"]) as producer,
    ):
        producer.connect(timeout=DEADLINE)
        sent = 0
        with daemon.engine_held(), pytest.raises(StalledError, match="for credit"):  # noqa: PT012
            while True:
                producer.send([(f"r{sent}", "ACGT" * 50_000)], timeout=0.3)
                sent += 1
        producer.flush(timeout=DEADLINE, matched=True)
        assert producer.durable == producer.matched == sent
        assert daemon.service.board.totals.fields()["reads"] == sent


def test_large_batches_are_split_and_too_large_a_read_is_told(path):
    reads = reads_of(GENOME, random.Random(2), 200)
    with (
        running(path, ["ingest.max_batch_bytes=2_000"]) as daemon,
        Producer(daemon.endpoints["ingest"]) as producer,
    ):
        producer.send(reads)
        producer.flush(matched=True)
        assert daemon.service.board.totals.fields()["reads"] == 200
        with pytest.raises(DaemonError, match=r"read long: a message of .* bytes exceeds 2000"):
            producer.send([("a", "ACGT"), ("long", "ACGT" * 1000)])
        producer.send([("after", "ACGT")])


def test_refused_batch_is_told_and_the_others_go_on(path):
    with (
        running(path) as daemon,
        Producer(daemon.endpoints["ingest"]) as producer,
    ):
        producer.send([("a", "ACGT")])
        with pytest.raises(RefusedError) as caught:  # noqa: PT012
            for text in ("ACGT", "AC-T", "ACGT", "ACGT"):
                producer.send([("b", text)])
            producer.flush(timeout=DEADLINE)
        assert (caught.value.reason, caught.value.read, caught.value.position) == ("base", "b", 2)
        assert "'-' is not a base" in str(caught.value)
        producer.send([("c", "ACGT")])
        producer.flush(timeout=DEADLINE, matched=True)
        assert 3 <= daemon.service.board.totals.fields()["reads"] <= 5


@contextmanager
def lossy_proxy(backend, frontend, lost):
    """A ROUTER/DEALER pair that loses what ``lost(direction, n)`` says; n counts messages."""
    context = zmq.Context()
    stop = threading.Event()

    def work():
        front, back = context.socket(zmq.ROUTER), {}
        front.bind(frontend)
        poller = zmq.Poller()
        poller.register(front, zmq.POLLIN)
        counts = {"in": 0, "out": 0}
        while not stop.is_set():
            for ready, _ in poller.poll(50):
                if ready is front:
                    route, *frames = front.recv_multipart()
                    if route not in back:
                        back[route] = context.socket(zmq.DEALER)
                        back[route].connect(backend)
                        poller.register(back[route], zmq.POLLIN)
                    counts["in"] += 1
                    if not lost("in", counts["in"]):
                        back[route].send_multipart(frames)
                else:
                    frames = ready.recv_multipart()
                    counts["out"] += 1
                    if not lost("out", counts["out"]):
                        route = next(r for r, s in back.items() if s is ready)
                        front.send_multipart([route, *frames])
        for held in (front, *back.values()):
            held.close(linger=0)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(DEADLINE)
        context.term()


def test_lost_messages_are_sent_again_with_one_effect(path, tmp_path):
    rng = random.Random(4)
    dropped = {("in", n) for n in range(2, 40) if rng.random() < 0.15}
    dropped |= {("out", n) for n in range(2, 40) if rng.random() < 0.15}
    proxy = f"ipc://{tmp_path}/proxy"
    with (
        running(path) as daemon,
        Subscriber(daemon.endpoints["feed"], ["read"]) as feed,
        lossy_proxy(daemon.endpoints["ingest"], proxy, lambda *message: message in dropped),
        Producer(proxy) as producer,
    ):
        assert feed.wait_for_daemon(DEADLINE)
        for i in range(20):
            producer.send([(f"r{i}", "ACGT")], timeout=DEADLINE)
        producer.flush(timeout=DEADLINE, matched=True)
        names = [name for _ in range(20) for name in feed.receive(DEADLINE).origin.names]
        assert names == [f"r{i}" for i in range(20)]
        assert daemon.service.board.totals.fields()["batches"] == 20


def test_restarted_daemon_gets_what_it_did_not_have(path):
    with running(path) as daemon:
        producer = Producer(daemon.endpoints["ingest"])
        producer.send([("a", "ACGT")])
        producer.flush(matched=True)
    with running(path) as daemon:
        producer.send([("b", "ACGT")], timeout=DEADLINE)
        producer.flush(timeout=DEADLINE, matched=True)
        assert daemon.service.board.totals.fields()["reads"] == 1
        # had the first daemon lost what it had accepted, it would be said
        core = producer._core
        core.matched = producer.durable - 1
        core._session = "another", 1
        core.greet_anew()
        with pytest.raises(LostBatchesError, match="1 accepted batches were not matched"):
            producer.flush(timeout=DEADLINE, matched=True)
        producer.close()


def test_a_producer_that_waits_for_credit_notices_a_restart(path):
    """The new daemon knows its connection from what it says only, so it must say something."""
    endpoint = f"ipc://{os.path.dirname(path)}/ingest"
    context = zmq.Context()
    killed = context.socket(zmq.ROUTER)
    killed.bind(endpoint)
    greeted = threading.Event()

    def answer():
        route, hello, _ = killed.recv_multipart()
        fields = {"v": 2, "type": "welcome", "stream": "0" * 16, "session": 1, "state": "running"}
        fields |= {key: msgpack.unpackb(hello)[key] for key in ("producer", "epoch")}
        fields |= dict.fromkeys(("received", "durable", "matched", "credit"), 0)
        welcome = msgpack.packb(fields | {"max_batch_bytes": 1000})
        killed.send_multipart([route, *sealed(welcome)])
        # it has no credit, asks for it, and then the daemon is gone
        killed.recv_multipart()
        killed.close(linger=0)
        # the socket's file is unlinked by another thread, and must not be the next daemon's
        context.term()
        greeted.set()

    thread = threading.Thread(target=answer)
    thread.start()
    with Producer(endpoint, answer_seconds=DEADLINE) as producer:
        sending = threading.Thread(target=producer.send, args=([("a", "ACGT")],))
        sending.start()
        assert greeted.wait(DEADLINE)
        with running(path) as daemon:
            sending.join(DEADLINE)
            producer.flush(timeout=DEADLINE, matched=True)
            assert daemon.service.board.totals.fields()["reads"] == 1
    thread.join(DEADLINE)


# ---- Subscriber ----------------------------------------------------------------------------


STREAM = "00112233445566ff"


def stamp(topic, at, epoch, stream):
    return {"v": 2, "topic": topic, "stream": stream, "epoch": epoch, "at": at, "time": 0}


class Feed:
    """A feed that says what it is told to."""

    def __init__(self, endpoint):
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.XPUB)
        self.socket.rcvtimeo = int(DEADLINE * 1000)
        self.socket.bind(endpoint)

    def await_beat_subscription(self):
        """What is subscribed to up to then, beats included."""
        subscriptions = []
        while subscriptions[-1:] != [b"\x01beat."]:
            subscriptions.append(self.socket.recv())
        return subscriptions

    def read(self, at, prev, epoch=1, damage=False, stream=STREAM):
        origin = {"batch": at, "base": 0, "producer": "p", "producer_epoch": 1, "producer_seq": 1}
        origin |= {"version_before": 1, "version": 1, "k": 3}
        head = stamp("read.", at, epoch, stream) | {"prev": prev} | origin
        import numpy as np

        none = np.zeros(0, np.int64)
        columns = dict.fromkeys(("length", "windows", "matches", "mismatches", "skipped"), none) | {
            "read": none.astype(np.uint32),
            "best_target": none.astype(np.int32),
        }
        frames = [bytes(f) for f in encode_feed("read", head, msgpack.packb([]), columns)]
        if damage:
            frames[2] = b"\x91\xa0"
        self.socket.send_multipart(frames)

    def beat(self, at, heads, epoch=1, stream=STREAM):
        about = {"heads": heads, "totals": {}, "state": "running"}
        self.socket.send_multipart(encode_notice("beat", stamp("beat.", at, epoch, stream) | about))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close(linger=0)
        self.context.term()


def test_beats_are_subscribed_to_last(tmp_path):
    """Whoever has heard one hears all topics from then on."""
    endpoint = f"ipc://{tmp_path}/feed"
    with Feed(endpoint) as feed, Subscriber(endpoint, ["beat", "match"]):
        held = feed.await_beat_subscription()
    assert held == [b"\x01match.", b"\x01status.", b"\x01beat."]


def test_every_kind_of_loss_is_noticed(tmp_path):
    endpoint = f"ipc://{tmp_path}/feed"
    with Feed(endpoint) as feed, Subscriber(endpoint, ["read"]) as subscriber:
        feed.await_beat_subscription()
        feed.beat(5, {"read.": 3})
        feed.read(6, 3)
        feed.read(8, 6)  # 7 was of another topic
        feed.read(12, 10)  # 10 is missing
        feed.read(12, 10)  # twice
        feed.read(11, 10)  # late
        feed.beat(13, {"read.": 12})
        feed.read(14, 12, damage=True)
        feed.beat(15, {"read.": 14})  # the tail is missing
        feed.read(16, 14)
        feed.read(18, 17, epoch=2)  # restarted, and 17 is missing
        feed.read(2, 1, stream="f" * 16)  # another daemon
        feed.socket.send_multipart([b"read.", b"\xc1"])
        feed.socket.send_multipart([b"read."])
        feed.read(3, 2, stream="f" * 16)
        said = []
        for _ in range(12):
            message = subscriber.receive(DEADLINE)
            odd = isinstance(message, Gap | NewEpoch | NewStream)
            said.append(message if odd else message.stamp.at)
        assert said[:5] == [6, 8, Gap("read", 8, 10), 12, Gap("read", 12, 14)]
        assert said[5:9] == [16, NewEpoch(1, 2), Gap("read", 16, 17), 18]
        assert said[9:] == [NewStream(STREAM, "f" * 16), 2, 3]
        assert (subscriber.gaps, subscriber.damaged) == (3, 3)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("gone", range(5))
def test_a_batch_whose_sending_was_interrupted_is_sent_again(path, monkeypatch, gone, late):
    """Also when an answer from before has it sent again before its torn part is refused."""
    welcomes = []
    welcome = ProducerCore._welcome
    monkeypatch.setattr(
        ProducerCore,
        "_welcome",
        lambda self, header: welcomes.append(header) or welcome(self, header),
    )

    def interrupted(self, frames, *_, **__):
        for number, frame in enumerate(frames[:gone], 1):
            self.send(frame, zmq.SNDMORE if number < len(frames) else 0)
        raise KeyboardInterrupt

    with running(path) as daemon, Producer(daemon.endpoints["ingest"]) as producer:
        producer.connect()
        with monkeypatch.context() as patch:
            patch.setattr(zmq.Socket, "send_multipart", interrupted)
            with pytest.raises(KeyboardInterrupt):
                producer.send([("a", GENOME[:50])])
        if late:
            producer._core.hear(welcomes[0], time.monotonic())
            producer._transmit()
        producer.send([("b", GENOME[:60])])
        producer.flush(matched=True)
        totals = daemon.service.board.totals.fields()
    assert (producer.durable, totals["reads"]) == (2, 2)


@pytest.mark.parametrize(
    "heads", [{"read.": None}, {"read.": "3"}, {"read.": 1.5}, [["read.", True]]]
)
def test_a_beat_that_makes_no_sense_is_damage(tmp_path, heads):
    endpoint = f"ipc://{tmp_path}/feed"
    with Feed(endpoint) as feed, Subscriber(endpoint, ["read"]) as subscriber:
        feed.await_beat_subscription()
        feed.beat(5, heads)
        feed.read(6, 3)
        assert subscriber.receive(DEADLINE).stamp.at == 6
        assert (subscriber.gaps, subscriber.damaged) == (0, 1)


def test_subscriber_that_was_away_notices(path):
    with (
        running(path) as daemon,
        Producer(daemon.endpoints["ingest"]) as producer,
        Subscriber(daemon.endpoints["feed"], ["read"]) as feed,
    ):
        assert feed.wait_for_daemon(DEADLINE)
        producer.send([("a", "ACGT")])
        assert isinstance(feed.receive(DEADLINE), ReadSummaries)
        feed._socket.disconnect(daemon.endpoints["feed"])
        producer.send([("b", "ACGT")])
        producer.flush(matched=True)
        feed._socket.connect(daemon.endpoints["feed"])
        assert isinstance(feed.receive(DEADLINE), Gap)


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


def test_unknown_topic_is_a_usage_error(nobody):
    with pytest.raises(UsageError, match="unknown topic 'matches'"):
        Subscriber(nobody, ["matches"])


def test_socket_that_answers_nonsense(tmp_path):
    endpoint = f"ipc://{tmp_path}/odd"
    context = zmq.Context()
    odd = context.socket(zmq.ROUTER)
    odd.bind(endpoint)

    def answer():
        if odd.poll(DEADLINE * 1000):
            odd.send_multipart([odd.recv_multipart()[0], b"\xc1"])

    thread = threading.Thread(target=answer)
    thread.start()
    producer = Producer(endpoint)
    with pytest.raises(DaemonError, match="invalid reply"):
        producer.connect(timeout=DEADLINE)
    producer.close()
    thread.join(DEADLINE)
    odd.close(linger=0)
    context.term()


def test_topics_are_named_with_or_without_their_dot(path):
    with (
        running(path) as daemon,
        Producer(daemon.endpoints["ingest"]) as producer,
        Subscriber(daemon.endpoints["feed"], ["read.", "read", "match"]) as feed,
    ):
        assert feed.topics == ("read", "match")
        assert feed.wait_for_daemon(DEADLINE)
        producer.send([("a", GENOME[5:50])])
        topics = {feed.receive(DEADLINE).stamp.topic for _ in range(2)}
    assert topics == {"read", "match"}
