"""Clients of the Python module and a daemon: silence, credit, refusals, kills."""

from __future__ import annotations

import random
import signal
import threading
import time
from itertools import product

import pytest
import zmq

from streamer.client import Control, DaemonError, DaemonSilentError, Producer, StalledError
from streamer.client.core.producer import ProducerCore
from tests.daemon_kit import (
    DEADLINE,
    GENOME,
    process,
    reads_of,
    running,
    settings,
    wait_for_line,
    write_fasta,
)

pytestmark = pytest.mark.whole


@pytest.fixture
def nobody(tmp_path):
    return f"ipc://{tmp_path}/nobody"


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


def totals(folder):
    with Control(f"ipc://{folder}/control") as control:
        return control.status()["totals"]


def test_a_kill_while_batches_are_on_their_way(tmp_path):
    genome = write_fasta(tmp_path / "genome.fa", [("genome", GENOME)])
    config = settings(tmp_path, f'sources = ["{genome.name}"]\nk = 11\n')
    with open(config, "a") as file:
        file.write(f'[journal]\ndurability = "os"\ndirectory = "{tmp_path}/journal"\n')
    with Producer(f"ipc://{tmp_path}/ingest", name="x", answer_seconds=DEADLINE) as producer:
        epoch = producer.epoch
        for run in range(2):
            with process(["run", "--config", config]) as daemon:
                for i in range(100):
                    producer.send([(f"{run}-{i}", GENOME[:300])], mark=b"%d-%d" % (run, i))
                if run < 1:
                    daemon.send_signal(signal.SIGKILL)
                    daemon.wait(DEADLINE)
                    continue
                producer.flush(timeout=DEADLINE, matched=True)
                assert producer.epoch == epoch
                assert producer.reads_acknowledged == producer.reads_sent == 200
                assert totals(tmp_path)["reads"] == totals(tmp_path)["batches"] == 200
                with Producer(f"ipc://{tmp_path}/ingest", name="x") as later:
                    later.connect()
                    assert later.mark == b"1-99"
                daemon.send_signal(signal.SIGTERM)
                wait_for_line(daemon, '"ended"')
                assert daemon.wait(DEADLINE) == 0
