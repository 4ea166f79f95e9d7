"""The life of the daemon: start, control, drain, signals, end."""

from __future__ import annotations

import json
import signal
import socket
from types import SimpleNamespace

import pytest
import zmq

from streamer.client import Control, Producer, ReadSummaries, Subscriber
from streamer.daemon import service
from streamer.daemon.socket_worker import SocketWorker
from streamer.errors import StreamerError
from streamer.protocol.endpoints import EndpointError
from tests.daemon_kit import (
    DEADLINE,
    GENOME,
    GOOD,
    Raw,
    Running,
    follow,
    list_batch,
    process,
    running,
    settings,
    wait_for_line,
    write_fasta,
)
from trie.cpu.compiling import NOTICE

pytestmark = pytest.mark.whole

TOPICS = ("match", "mismatch", "delta", "read")


def test_drain_finishes_what_was_accepted_and_refuses_more(path):
    with (
        running(path) as daemon,
        Subscriber(daemon.endpoints["feed"], ["read", "status"]) as feed,
        Raw(daemon.endpoints["ingest"]) as raw,
        Control(daemon.endpoints["control"]) as control,
    ):
        assert feed.wait_for_daemon(DEADLINE)
        with daemon.engine_held():
            for seq in range(1, 6):
                raw.send(*list_batch(seq, [[f"r{seq}", "ACGT" * 9]]))
                raw.accepted(seq)
            control.drain()
            answer = {"type": "ack"}
            while answer["type"] == "ack":
                seq += 1
                raw.send(*list_batch(seq, [[f"r{seq}", "ACGT" * 9]]))
                answer = raw.receive()
            assert answer["reason"] == "draining"
            assert control.status()["state"] == "draining"
        daemon.join()
        messages = list(feed)
    names = [name for m in messages if isinstance(m, ReadSummaries) for name in m.origin.names]
    assert names == [f"r{i}" for i in range(1, answer["received"] + 1)]
    assert messages[-1].state == "ended"
    assert messages[-1].status["totals"]["reads"] == len(names)
    assert not feed.gaps


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


# ---- control -------------------------------------------------------------------------------


def test_control_answers_dealers_and_reqs(path):
    known = "status, drain, reload, ask, targets, panel, coverage, novelty, submit, jobs, job, "
    known += "cancel, retry, result"
    with running(path) as daemon:
        for kind in (zmq.DEALER, zmq.REQ):
            with Raw(daemon.endpoints["control"], kind) as raw:
                raw.send({"v": 2, "id": "x", "command": "status"})
                answer = raw.receive()
                state = answer["status"]["state"]
                assert (answer["ok"], answer["id"], state) == (True, "x", "running")
                raw.send({"v": 2, "id": 2, "command": "dance"})
                answer = raw.receive()
                assert not answer["ok"]
                assert answer["message"] == f"unknown command 'dance' (known: {known})"
                raw.send(b"\xc1")
                assert raw.receive()["reason"] == "malformed"


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
    with running(path, overrides) as daemon, Control(daemon.endpoints["control"]) as control:
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


def test_sigint_drains_and_exits_0(path, tmp_path):
    with process(["run", "--config", path]) as child:
        wait_for_line(child, '"ready"')
        child.send_signal(signal.SIGINT)
        assert '"reads": 0' in wait_for_line(child, '"ended"')
        assert child.wait(DEADLINE) == 0
    assert not list(tmp_path.glob("ingest"))


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


def test_every_line_of_a_json_log_is_json(path):
    """The notice of compiling, warnings, and why a daemon ends, too."""
    events = []
    with process(["run", "--config", path], NOISY) as child:
        assert child.stderr is not None
        for line in child.stderr:
            events.append(json.loads(line))
            if events[-1]["event"] == "ready":
                with process(["run", "--config", path]) as second:
                    _, err = second.communicate(timeout=DEADLINE)
                child.send_signal(signal.SIGTERM)
        assert child.wait(DEADLINE) == 0
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
