"""The clients: the Python module, and one written from docs/protocol.md alone."""

from __future__ import annotations

import os
import random
import threading
import time
from contextlib import contextmanager
from itertools import product

import msgpack
import pytest
import zmq
from crc32c import crc32c

from streamer.client import (
    Control,
    DaemonError,
    DaemonSilentError,
    LostBatchesError,
    Producer,
    RefusedError,
    StalledError,
    Subscriber,
)
from streamer.client.core.producer import ProducerCore
from tests.daemon_kit import DEADLINE, GENOME, reads_of, running, sealed
from tests.waiting import beside

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
        assert daemon.service.status.totals.fields()["reads"] == sent


def test_large_batches_are_split_and_too_large_a_read_is_told(path):
    reads = reads_of(GENOME, random.Random(2), 200)
    with (
        running(path, ["ingest.max_batch_bytes=2_000"]) as daemon,
        Producer(daemon.endpoints["ingest"]) as producer,
    ):
        producer.send(reads)
        producer.flush(matched=True)
        assert daemon.service.status.totals.fields()["reads"] == 200
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
        assert 3 <= daemon.service.status.totals.fields()["reads"] <= 5


@contextmanager
def lossy_proxy(backend, frontend, lost):
    """A ROUTER/DEALER pair that loses what ``lost(direction, n)`` says; n counts messages."""
    context = zmq.Context()

    def work(stop):
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

    try:
        with beside(work):
            yield
    finally:
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
        assert daemon.service.status.totals.fields()["batches"] == 20


def test_restarted_daemon_gets_what_it_did_not_have(path):
    with running(path) as daemon:
        producer = Producer(daemon.endpoints["ingest"])
        producer.send([("a", "ACGT")])
        producer.flush(matched=True)
    with running(path) as daemon:
        producer.send([("b", "ACGT")], timeout=DEADLINE)
        producer.flush(timeout=DEADLINE, matched=True)
        assert daemon.service.status.totals.fields()["reads"] == 1
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
            assert daemon.service.status.totals.fields()["reads"] == 1
    thread.join(DEADLINE)


def test_a_batch_whose_sending_was_interrupted_is_sent_again(path, monkeypatch):
    """Also when an answer from before has it sent again before its torn part is refused."""
    welcomes = []
    welcome = ProducerCore._welcome
    monkeypatch.setattr(
        ProducerCore,
        "_welcome",
        lambda self, header: welcomes.append(header) or welcome(self, header),
    )
    with running(path) as daemon:
        for gone, late in product(range(5), (False, True)):

            def interrupted(self, frames, *_, gone=gone, **__):
                for number, frame in enumerate(frames[:gone], 1):
                    self.send(frame, zmq.SNDMORE if number < len(frames) else 0)
                raise KeyboardInterrupt

            welcomes.clear()
            before = daemon.service.status.totals.fields()["reads"]
            with Producer(daemon.endpoints["ingest"]) as producer:
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
                reads = daemon.service.status.totals.fields()["reads"] - before
            assert (producer.durable, reads) == (2, 2), (gone, late)


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
