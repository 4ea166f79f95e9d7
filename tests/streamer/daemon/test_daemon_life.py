"""The life of the daemon: one pass over all reads, start, control, drain, signals, end."""

from __future__ import annotations

import json
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import closing
from types import SimpleNamespace

import pytest
import zmq

from streamer.client import (
    Intervals,
    NewKmers,
    Producer,
    ReadSummaries,
    RefusedError,
    Status,
    Subscriber,
)
from streamer.daemon import config, service
from streamer.daemon import service as module
from streamer.daemon.socket_worker import SocketWorker
from streamer.errors import StreamerError
from streamer.matching.matcher import StreamMatcher
from streamer.protocol.endpoints import EndpointError, socket_path
from tests.daemon_kit import (
    DEADLINE,
    GENOME,
    GOOD,
    Raw,
    Running,
    controlled,
    follow,
    list_batch,
    process,
    reads_of,
    rows_of,
    running,
    settings,
    wait_for_line,
    write_fasta,
)
from tests.waiting import until
from trie.cpu.compiling import NOTICE

pytestmark = pytest.mark.whole

TOPICS = ("match", "mismatch", "delta", "read")


def test_words_are_computed_for_whoever_asks(path):
    with (
        running(path) as daemon,
        Subscriber(daemon.endpoints["feed"], ["word", "read"]) as feed,
        Producer(daemon.endpoints["ingest"]) as producer,
    ):
        assert feed.wait_for_daemon(DEADLINE)
        producer.send([("a", GENOME[:100]), ("b", "ACGT" * 10)])
        producer.send([("c", GENOME[50:90])])
        messages = follow(feed, 2)
    words = [m for m in messages if not isinstance(m, ReadSummaries)]
    assert [m.word.size for m in words] == [90 + 30, 30]
    assert [int(m.chunk_base[0]) for m in words] == [0, 140]
    assert all(int(word) >> 63 == 0 for word in words[1].word)
    assert {int(word) & 31 for word in words[1].word} == {11}


# ---- start -------------------------------------------------------------------------------


def test_endpoint_in_use_is_named(path, tmp_path, genome, streamer):
    with running(path, ["ingest.endpoint=tcp://127.0.0.1:*"]) as daemon:
        code, out, err = streamer("run", "--config", path)
        assert (code, out) == (1, "")
        (line,) = [line for line in err.splitlines() if "error" in line]
        assert "feed.endpoint" in line
        assert "in use" in line
        (tmp_path / "other").mkdir()
        other = settings(tmp_path / "other", f'sources = ["{genome}"]')
        taken = daemon.endpoints["ingest"]
        with pytest.raises(
            EndpointError, match=r"^ingest\.endpoint: .*: endpoint in use"
        ) as caught:
            Running(other, [f"ingest.endpoint={taken}"])
        assert taken in str(caught.value)
        with Producer(taken) as producer:
            producer.send([("still there", "ACGT" * 5)])


def test_socket_file_of_a_dead_daemon_is_replaced(path, tmp_path):
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "ingest"))
    with running(path) as daemon, Producer(daemon.endpoints["ingest"]) as producer:
        assert (tmp_path / "ingest").stat().st_mode & 0o777 == 0o600
        producer.send([("a", "ACGT")])
    assert not (tmp_path / "ingest").exists()


def test_a_file_that_is_no_socket_stays(path, tmp_path):
    (tmp_path / "feed").write_text("precious")
    with pytest.raises(EndpointError, match=r"feed\.endpoint: .* a file that is not a socket"):
        Running(path)
    assert (tmp_path / "feed").read_text() == "precious"
    assert not (tmp_path / "ingest").exists()


def test_free_ports_are_found_and_told(path):
    overrides = [f"{name}.endpoint=tcp://127.0.0.1:*" for name in ("ingest", "feed", "control")]
    with controlled(path, overrides) as (daemon, control):
        assert control.status()["endpoints"] == daemon.endpoints
        assert len(set(daemon.endpoints.values())) == 3


def test_dictionary_without_a_whole_kmer_ends_the_start(tmp_path):
    write_fasta(tmp_path / "short.fa", [("a", "ACGT")])
    daemon = Running(settings(tmp_path, 'sources = ["short.fa"]'))
    daemon.join()
    assert isinstance(daemon.error, StreamerError)
    assert "no whole 21-mer" in str(daemon.error)


# ---- the process -------------------------------------------------------------------------


def test_what_a_socket_keeps_for_peers_that_left_is_limited_from_the_start(tmp_path):
    with zmq.Context() as context:
        config = SimpleNamespace(ingest=SimpleNamespace(endpoint=f"ipc://{tmp_path}/any"))
        status = SimpleNamespace(config=config)
        worker = SocketWorker("ingest", status, context, lambda: None)
        made = worker.bind(zmq.ROUTER, {})
        linger = made.getsockopt(zmq.LINGER)
        worker.release(made)
    assert 0 <= linger <= 1000


def test_the_end_does_not_wait_for_a_socket_that_stays(path, monkeypatch, capsys):
    monkeypatch.setattr(service, "_TERM_SECONDS", 0.2)
    with running(path) as daemon:
        left = daemon.service._context.socket(zmq.DEALER)
    assert "libzmq did not end" in capsys.readouterr().err
    left.close()


STUCK = (
    "import sys\n"
    "from streamer.daemon.engine import EngineWorker\n"
    "EngineWorker._match = lambda self, items: self.stopping.wait()\n"
    "from streamer.cli.app import main\n"
    "sys.exit(main(sys.argv[1:]))\n"
)


def test_second_signal_ends_at_once(path, tmp_path):
    with process(["run", "--config", path], STUCK) as child:
        wait_for_line(child, '"ready"')
        with Raw(f"ipc://{tmp_path}/ingest") as raw:
            raw.open()
            raw.send(*GOOD)
            raw.accepted(1)
        child.send_signal(signal.SIGTERM)
        wait_for_line(child, '"draining"')
        child.send_signal(signal.SIGINT)
        assert child.wait(DEADLINE) == 130
    assert not list(tmp_path.glob("ingest"))


NOISY = (
    "import sys, warnings\n"
    "from numba import njit\n"
    "from streamer.daemon import engine\n"
    "from trie.cpu import compiling\n"
    "compiling.NOTICE_SECONDS = 0\n"
    "load = engine.load_dictionary\n"
    "def compiling(*arguments, **options):\n"
    "    njit(lambda: 1)()\n"
    "    warnings.warn('take care')\n"
    "    return load(*arguments, **options)\n"
    "engine.load_dictionary = compiling\n"
    "from streamer.cli.app import main\n"
    "sys.exit(main(sys.argv[1:]))\n"
)


def test_every_line_of_a_json_log_is_json_until_an_interrupt_drains(path, tmp_path):
    """The notice of compiling, warnings, and why a daemon ends, too."""
    events = []
    with process(["run", "--config", path], NOISY) as child:
        assert child.stderr is not None
        for line in child.stderr:
            events.append(json.loads(line))
            if events[-1]["event"] == "ready":
                with process(["run", "--config", path]) as second:
                    _, err = second.communicate(timeout=DEADLINE)
                child.send_signal(signal.SIGINT)
        assert child.wait(DEADLINE) == 0
    assert not (tmp_path / "ingest").exists()
    (ended,) = [event for event in events if event["event"] == "ended"]
    assert ended["reads"] == 0
    said = {line["event"]: line["level"] for line in events}
    assert said[NOTICE] == "info"
    assert said["take care"] == "warning"
    assert second.returncode == 1
    # the log's thread may write other lines after it where cores are few
    (why,) = [line for line in map(json.loads, err.splitlines()) if line["level"] == "error"]
    assert "endpoint in use" in why["event"]


def test_subscriber_that_reads_hears_all_when_messages_grow(path):
    """What waits is bounded in messages: a mark lowered as they grow would silence it for good."""
    heard = []
    with (
        running(path, [f"feed.buffer_bytes={16 << 20}"]) as daemon,
        Subscriber(daemon.endpoints["feed"], ["read"]) as feed,
        Producer(daemon.endpoints["ingest"]) as producer,
    ):
        assert feed.wait_for_daemon(DEADLINE)

        def send(reads, times):
            for _ in range(times):
                producer.send([(f"r{i}", "ACGTACGTACGTACGT") for i in range(reads)])
            upto = len(heard) + times
            while len(heard) < upto:
                message = feed.receive(DEADLINE)
                assert isinstance(message, ReadSummaries), (message, len(heard), upto)
                heard.append(message)

        for _ in range(20):
            send(1, 50)
        for _ in range(10):
            send(20_000, 2)
    assert not feed.gaps


def await_state(raw, kind, state):
    """The next answer of a type that names this state."""
    while True:
        answer = raw.receive_type(kind)
        if answer["state"] == state:
            return answer


def test_nothing_is_accepted_between_the_end_and_the_last_thread(path, monkeypatch):
    """Newcomers that send while the threads stop are refused: nobody matches any more."""
    ended, go_on = threading.Event(), threading.Event()
    with (
        running(path) as daemon,
        Subscriber(daemon.endpoints["feed"], ["read", "status"]) as feed,
        Raw(daemon.endpoints["ingest"]) as raw,
        Raw(daemon.endpoints["ingest"]) as late,
    ):
        assert feed.wait_for_daemon(DEADLINE)
        engine = daemon.service._engine

        def stop():
            ended.set()
            assert go_on.wait(DEADLINE)
            engine.stopping.set()

        monkeypatch.setattr(engine, "stop", stop)
        raw.send(*GOOD)
        raw.accepted(1, matched=1)
        daemon.service.drain("enough")
        assert ended.wait(DEADLINE)
        late.send({"v": 2, "type": "hello", "producer": "newcomer", "epoch": 1})
        late.send(*list_batch(1, [["late", "ACGT" * 9]], producer="newcomer"))
        answer = late.receive_type("refused")
        go_on.set()
        assert (answer["type"], answer["reason"]) == ("refused", "draining")
        assert (answer["state"], answer["credit"], answer["received"]) == ("ended", 0, 0)
        daemon.join()
        messages = list(feed)
    assert messages[-1].state == "ended"
    assert [m.origin.producer for m in messages if isinstance(m, ReadSummaries)] == ["raw"]


def test_one_turn_of_ingest_has_one_state(path, monkeypatch):
    """A drain that begins while ingest is at work gives no credit that is not meant."""
    with running(path) as daemon, Raw(daemon.endpoints["ingest"]) as raw:
        ingest, status = daemon.service._ingest, daemon.service.status
        take_in, sent = ingest._take_in, threading.Event()

        def drained_meanwhile():
            take_in()
            if sent.is_set() and status.state == "running":
                daemon.service.drain("now")
                while status.state == "running":
                    time.sleep(0)

        raw.open(epoch=1)
        monkeypatch.setattr(ingest, "_take_in", drained_meanwhile)
        raw.send(*GOOD)
        sent.set()
        answers = [raw.receive()]
        while answers[-1]["state"] != "ended":
            answers.append(raw.receive())
    assert all(a["credit"] == 0 for a in answers if a["state"] != "running")
    assert answers[-1]["matched"] == answers[-1]["received"]


def test_a_producer_that_waits_for_credit_ends_with_a_refusal(path):
    with (
        running(path, ["ingest.memory_bytes=1048576", "ingest.max_batch_bytes=1000000"]) as daemon,
        daemon.engine_held(),
        closing(Producer(daemon.endpoints["ingest"])) as producer,
    ):
        producer.send([("first", "ACGT" * 200_000)])

        def drain():
            until(lambda: daemon.service.status.queued_batches == 1, "the first one is accepted")
            until(lambda: not producer._core.all_sent, "a batch without credit")
            daemon.service.drain("enough")

        draining = threading.Thread(target=drain)
        draining.start()
        with pytest.raises(RefusedError, match="accepts no more batches"):
            producer.send([("second", "ACGT" * 200_000)], timeout=DEADLINE)
        draining.join()
        assert producer.durable == 1


def test_a_failure_is_not_called_an_end(path, monkeypatch, streamer):
    """What was accepted is lost then: those who listen and those who send can tell."""
    daemon = Running(path)
    daemon.wait_until_open()
    with (
        Raw(daemon.endpoints["ingest"]) as raw,
        Subscriber(daemon.endpoints["feed"], ["status"]) as feed,
    ):
        assert feed.wait_for_daemon(DEADLINE)
        raw.send(*GOOD)
        raw.accepted(1, matched=1)
        monkeypatch.setattr(StreamMatcher, "match", lambda *_, **__: 1 // 0)

        def send():
            daemon.wait_for_subscriptions("beat", "match", "status")
            raw.send(*list_batch(2, [["r", "ACGT" * 9]]))

        sending = threading.Thread(target=send)
        sending.start()
        code, _, err = streamer("watch", "--from", daemon.endpoints["feed"])
        sending.join()
        answer = await_state(raw, "ack", "failed")
        assert (answer["received"], answer["matched"], answer["credit"]) == (2, 1, 0)
        states = [message.state for message in feed if isinstance(message, Status)]
        assert states[-1] == "failed"
        assert feed.failed
    daemon.join()
    assert str(daemon.error) == (
        "the engine thread failed: ZeroDivisionError: integer division or modulo by zero"
    )
    assert code == 1
    lines = [line for line in err.splitlines() if line.startswith("streamer: error: ")]
    assert lines == [
        f"streamer: error: {daemon.endpoints['feed']}: the daemon failed: batches that it had "
        "accepted may be missing here"
    ]


class Left(BaseException):
    """In place of the end of the process."""


def test_the_end_is_said_although_the_engine_loads_on(path, monkeypatch):
    loading, enough = threading.Event(), threading.Event()

    def load(*_):
        loading.set()
        assert enough.wait(DEADLINE)

    monkeypatch.setattr(module, "warm_up", load)
    monkeypatch.setattr(module, "_JOIN_SECONDS", 0.01)
    service = module.Service(config.load(path))
    endpoints = service.start()
    files = [socket_path(endpoint) for endpoint in endpoints.values()]
    assert all(file.exists() for file in files)
    try:
        with Subscriber(endpoints["feed"], ["status"]) as feed:
            assert feed.wait_for_daemon(DEADLINE)
            assert loading.wait(DEADLINE)
            service.drain("enough")
            service.wait()
            assert service.stuck == ["engine"]
            states = [message.state for message in feed if isinstance(message, Status)]
            assert states[-1] == "ended"
        assert not any(file.exists() for file in files)
    finally:
        enough.set()
        service._engine.join(DEADLINE)
    assert not service.stuck


def test_who_leaves_in_a_hurry_leaves_no_files(tmp_path, monkeypatch, path):
    def end(code):
        raise Left(code)

    monkeypatch.setattr(module.os, "_exit", end)
    service = module.Service(config.load(path))
    there = tmp_path / "there"
    there.touch()
    gone = f"ipc://{tmp_path}/gone"
    service.status.endpoints |= {"feed": f"ipc://{there}", "ingest": gone, "control": "tcp://x:1"}
    with pytest.raises(Left) as left:
        service.leave(130)
    assert left.value.args == (130,)
    assert not there.exists()
    service._stop()


def in_order(found, names):
    place = {name: i for i, name in enumerate(names)}
    return sorted(found, key=lambda row: (place[row[0]], int(row[1])))


def expected(streamer, tmp_path, reads, genome, mode, report):
    """What ``streamer match`` says about reads."""
    fasta = write_fasta(tmp_path / f"{report}.fa", reads)
    code, out, err = streamer(
        "match", fasta, "-d", genome, "-k", 11, "--mode", mode, "--report", report, "--quiet"
    )
    assert code == 0, err
    return [tuple(line.split("\t")) for line in out.splitlines()[1:]]


def check_equal(messages, sent, streamer, tmp_path, genome, mode):
    """The feed says of the reads, in the order of acceptance, what ``streamer match`` says."""
    summaries = [m for m in messages if isinstance(m, ReadSummaries)]
    assert [m.origin.batch for m in summaries] == list(range(len(summaries)))
    names = [name for m in summaries for name in m.origin.names]
    reads = [(name, sent[name]) for name in names]
    got = rows_of(
        messages,
        ReadSummaries,
        ["read", "length", "windows", "matches", "mismatches", "skipped", "best_target"],
    )
    assert got == expected(streamer, tmp_path, reads, genome, mode, "reads")
    got = rows_of(messages, Intervals, ["read", "start", "end", "event", "windows", "target"])
    assert in_order(got, names) == expected(streamer, tmp_path, reads, genome, mode, "intervals")
    new = [int(code) for m in messages if isinstance(m, NewKmers) for code in m.code]
    assert (
        len(new)
        == len(set(new))
        == sum(int(m.mismatches.sum()) for m in summaries) * (mode == "grow")
    )


@pytest.mark.parametrize("mode", ["frozen", "grow"])
def test_several_producers_equal_one_pass(path, tmp_path, genome, streamer, mode):
    made = {f"p{i}": reads_of(GENOME, random.Random(i), 60, prefix=f"p{i}-") for i in range(3)}
    sizes = {"p0": 1, "p1": 7, "p2": 60}
    batches = sum(-(-60 // size) for size in sizes.values())
    failed = []

    def produce(name):
        try:
            with Producer(daemon.endpoints["ingest"], name=name) as producer:
                for at in range(0, 60, sizes[name]):
                    producer.send(made[name][at : at + sizes[name]], timeout=DEADLINE)
                producer.flush(timeout=DEADLINE, matched=True)
        except Exception as error:
            failed.append(error)

    with (
        running(path, [f"dictionary.mode={mode}"]) as daemon,
        Subscriber(daemon.endpoints["feed"], TOPICS) as feed,
    ):
        assert feed.wait_for_daemon(DEADLINE)
        threads = [threading.Thread(target=produce, args=(name,)) for name in made]
        for thread in threads:
            thread.start()
        messages = follow(feed, batches)
        for thread in threads:
            thread.join(DEADLINE)
        assert not failed
        totals = daemon.service.status.totals.fields()
    sent = {name: sequence for reads in made.values() for name, sequence in reads}
    assert totals["reads"] == len(sent)
    assert totals["bases"] == sum(map(len, sent.values()))
    check_equal(messages, sent, streamer, tmp_path, genome, mode)
    assert not feed.gaps


KERNELS_OF_A_GROUP = """
import sys
from streamer.client import Subscriber
from tests.daemon_kit import DEADLINE, GENOME, Raw, follow, list_batch, running
from trie.cpu.jit import Kernel

def loaded():
    modules = list(sys.modules.values())
    named = [value for module in modules for value in list(vars(module).values())]
    made = [kernel for kernel in named if type(kernel) is Kernel and kernel._made]
    names = {f"{kernel.__module__}.{kernel.__name__}" for kernel in made if kernel._made.signatures}
    assert len(names) > 20
    # the subscriber, in this process here, has kernels of its own
    return {name for name in names if not name.startswith("streamer.client.")}

with running(sys.argv[1]) as daemon, Raw(daemon.endpoints["ingest"]) as raw:
    with Subscriber(daemon.endpoints["feed"], ["match", "mismatch", "read"]) as feed:
        assert feed.wait_for_daemon(DEADLINE)
        before = loaded()
        with daemon.engine_held():
            for seq in range(1, 6):
                raw.send(*list_batch(seq, [[f"r{seq}", GENOME[1000 * seq : 1900 * seq]]]))
                raw.accepted(seq)
        follow(feed, 5)
        print(loaded() - before)
"""


def test_no_kernel_is_loaded_or_compiled_once_the_daemon_is_ready(tmp_path):
    write_fasta(tmp_path / "genome.fa", [("left", GENOME[:2500]), ("right", GENOME[1500:])])
    path = settings(tmp_path, 'sources = ["genome.fa"]\nk = 21\n')
    made = subprocess.run(
        [sys.executable, "-c", KERNELS_OF_A_GROUP, path],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert made.stdout == "set()\n", made.stderr[-2000:] + made.stdout
