"""The daemon as a whole: its results, its refusals, its start and its end."""

from __future__ import annotations

import random
import signal
import socket
import threading

import msgpack
import pytest
import zmq
from daemon_kit import (
    DEADLINE,
    Raw,
    Running,
    columns_batch,
    list_batch,
    process,
    random_dna,
    reads_of,
    running,
    settings,
    wait_for_line,
    write_fasta,
)

from streamer.client import Control, Intervals, NewKmers, Producer, ReadSummaries, Subscriber
from streamer.clients.tables import table
from streamer.endpoints import EndpointError
from streamer.errors import StreamerError
from streamer.matching import Matcher

GENOME = random_dna(random.Random(7), 4000)
TOPICS = ("match", "mismatch", "delta", "read")


@pytest.fixture
def genome(tmp_path):
    return write_fasta(tmp_path / "genome.fa", [("left", GENOME[:2500]), ("right", GENOME[1500:])])


@pytest.fixture
def path(tmp_path, genome):
    return settings(tmp_path, f'sources = ["{genome.name}"]\nk = 11\n')


def follow(feed, batches):
    """All messages about the first so many batches, and about nothing else."""
    messages, seen = [], 0
    while seen < batches:
        message = feed.receive(DEADLINE)
        assert message is not None, f"only {seen} of {batches} batches came"
        seen += isinstance(message, ReadSummaries)
        messages.append(message)
    return messages


def rows(messages, kind, columns):
    found = []
    for message in messages:
        if isinstance(message, kind):
            text = table(message).select(columns).rows()
            found += [tuple("." if v is None else str(v) for v in row) for row in text]
    return found


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
    got = rows(
        messages,
        ReadSummaries,
        ["read", "length", "windows", "matches", "mismatches", "skipped", "best_target"],
    )
    assert got == expected(streamer, tmp_path, reads, genome, mode, "reads")
    got = rows(messages, Intervals, ["read", "start", "end", "event", "windows", "target"])
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
        totals = daemon.service.board.totals.fields()
    sent = {name: sequence for reads in made.values() for name, sequence in reads}
    assert totals["reads"] == len(sent)
    assert totals["bases"] == sum(map(len, sent.values()))
    check_equal(messages, sent, streamer, tmp_path, genome, mode)
    assert not feed.gaps


def test_producer_killed_half_way_harms_nobody(path, tmp_path, genome, streamer):
    code = (
        "import sys\n"
        "from streamer.client import Producer\n"
        "reads = [(f'dead{i}', sys.argv[2][i : i + 50]) for i in range(900)]\n"
        "producer = Producer(sys.argv[1], name='dead')\n"
        "for i in range(900):\n"
        "    producer.send([reads[i]])\n"
        "sys.stderr.write('sent\\n'); sys.stderr.flush()\n"
        "sys.stdin.read()\n"
    )
    dead = {f"dead{i}": GENOME[i : i + 50] for i in range(900)}
    mine = dict(reads_of(GENOME, random.Random(5), 30))
    with (
        running(path) as daemon,
        Subscriber(daemon.endpoints["feed"], TOPICS) as feed,
        process([daemon.endpoints["ingest"], GENOME], code) as child,
        Producer(daemon.endpoints["ingest"]) as producer,
    ):
        assert feed.wait_for_daemon(DEADLINE)
        first = follow(feed, 1)
        child.send_signal(signal.SIGKILL)
        child.wait(DEADLINE)
        producer.send(list(mine.items()))
        producer.flush(matched=True)
        messages = first
        while not any(m.origin.producer == producer.name for m in messages):
            messages += follow(feed, 1)
    if first[0].origin.batch == 0:
        check_equal(messages, dead | mine, streamer, tmp_path, genome, "frozen")
    assert not feed.gaps


def test_empty_batches_and_short_reads_are_no_error(path):
    with (
        running(path) as daemon,
        Subscriber(daemon.endpoints["feed"], ["read"]) as feed,
        Producer(daemon.endpoints["ingest"]) as producer,
    ):
        assert feed.wait_for_daemon(DEADLINE)
        producer.send([])
        producer.send([("empty", ""), ("short", "ACG"), ("", "N" * 20)])
        first, second = follow(feed, 2)
    assert len(first.read) == 0
    assert list(second.length) == [0, 3, 20]
    assert list(second.skipped) == [0, 0, 10]


GOOD = list_batch(1, [["r", "ACGT"]])
GARBAGE = {
    "not msgpack": ((b"\xc1\xff\xff",), "malformed"),
    "empty header": ((b"",), "malformed"),
    "truncated header": ((msgpack.packb(GOOD[0])[:-3], GOOD[1]), "malformed"),
    "a list for a header": (([1, 2],), "malformed"),
    "numbers for keys": (({1: 2},), "malformed"),
    "deeply nested": ((b"\x91" * 5000,), "malformed"),
    "huge header": ((b"\xdb" + (70_000).to_bytes(4, "big") + b"x" * 70_000,), "malformed"),
    "no version": (({"type": "hello"},), "version"),
    "version 2": (({"v": 2, "type": "hello", "producer": "raw", "epoch": 1},), "version"),
    "version true": (({"v": True, "type": "hello", "producer": "raw", "epoch": 1},), "version"),
    "unknown type": (({"v": 1, "type": "bye"},), "malformed"),
    "no producer": (({"v": 1, "type": "hello", "epoch": 1},), "malformed"),
    "producer is a number": (
        ({"v": 1, "type": "hello", "producer": 5, "epoch": 1},),
        "malformed",
    ),
    "producer too long": (
        ({"v": 1, "type": "hello", "producer": "x" * 300, "epoch": 1},),
        "malformed",
    ),
    "negative epoch": (({"v": 1, "type": "hello", "producer": "raw", "epoch": -1},), "malformed"),
    "sequence 0": (list_batch(0, []), "malformed"),
    "sequence is text": (list_batch("1", []), "malformed"),
    "sequence over 2^63": (list_batch(2**64 - 1, []), "malformed"),
    "no frames": ((GOOD[0],), "checksum"),
    "too many frames": ((*GOOD, b"more"), "checksum"),
    "bad checksum": (list_batch(1, [["r", "ACGT"]], checksum=1), "checksum"),
    "no checksum": (list_batch(1, [], checksum=None), "malformed"),
    "unknown form": (list_batch(1, [], form="rows"), "malformed"),
    "list of numbers": (list_batch(1, [[1, 2]]), "malformed"),
    "read without a sequence": (list_batch(1, [["r"]]), "malformed"),
    "columns with one frame": (list_batch(1, [], form="columns"), "malformed"),
    "name with a tab": (list_batch(1, [["a\tb", "ACGT"]]), "malformed"),
    "names are numbers": (columns_batch(1, [1], [0, 4], b"ACGT"), "malformed"),
    "names are a map": (columns_batch(1, {}, [0], b""), "malformed"),
    "fewer names": (columns_batch(1, ["a"], [0, 2, 4], b"ACGT"), "malformed"),
    "offsets fall": (columns_batch(1, ["a", "b", "c"], [0, 3, 1, 4], b"ACGT"), "malformed"),
    "offsets do not begin at 0": (columns_batch(1, ["a"], [1, 4], b"ACGT"), "malformed"),
    "offsets end too far": (columns_batch(1, ["a"], [0, 5], b"ACGT"), "malformed"),
    "offsets wrap around": (
        columns_batch(1, ["a", "b"], [0, -(2**63), 4], b"ACGT"),
        "malformed",
    ),
    "no offsets": (columns_batch(1, [], [], b""), "malformed"),
    "a byte that is no base": (list_batch(1, [["a", "AC"], ["b", "ACXT"]]), "base"),
    "a character that is no byte": (list_batch(1, [["a", "AC\u20ac"]]), "base"),
    "a batch too large": (columns_batch(1, ["a"], [0, 60_000], b"A" * 60_000), "too-large"),
    "a gap": (list_batch(2, [["a", "ACGT"]]), "gap"),
}


@pytest.fixture
def small(path):
    """A daemon that takes batches of at most 50,000 bytes."""
    with running(path, ["ingest.max_batch_bytes=50000"]) as daemon:
        yield daemon


def test_garbage_is_refused_with_a_reason_and_harms_nobody(small):
    with Raw(small.endpoints["ingest"]) as raw, Producer(small.endpoints["ingest"]) as other:
        for what, (message, reason) in GARBAGE.items():
            raw.send(*message)
            answer = raw.receive()
            assert (answer["type"], answer["reason"]) == ("refused", reason), what
            assert answer["message"], what
            assert answer.get("received", 0) == 0, what
            other.send([(what, "ACGT" * 10)])
            other.flush(timeout=DEADLINE)
        raw.send(*GOOD)
        assert raw.receive_type("ack")["received"] == 1
    assert small.service.board.refused == len(GARBAGE)


def test_limits_beyond_what_zeromq_counts(path):
    """A high-water mark has 31 bits, a budget in bytes may have more."""
    budgets = [f"ingest.memory_bytes={2**50}", f"feed.buffer_bytes={2**50}"]
    with running(path, budgets) as daemon, Producer(daemon.endpoints["ingest"]) as producer:
        producer.send([("a", "ACGTACGTACGT")])


def test_refusal_names_read_and_position(small):
    with Raw(small.endpoints["ingest"]) as raw:
        raw.send(*list_batch(1, [["a", "ACGT"], ["b", "ACGNX"]]))
        answer = raw.receive()
    assert (answer["read"], answer["index"], answer["position"]) == ("b", 1, 4)
    assert answer["message"] == "read 2 (b), position 5: 'X' is not a base"


def test_huge_frame_ends_its_connection_only(small):
    with Raw(small.endpoints["ingest"]) as raw, Producer(small.endpoints["ingest"]) as other:
        raw.send(b"\x80" * 5_000_000)
        raw.send(*GOOD)
        other.send([("a", "ACGT" * 10)])
        other.flush(timeout=DEADLINE)


def test_same_batch_twice_has_one_effect(small):
    with Raw(small.endpoints["ingest"]) as raw:
        for _ in range(3):
            raw.send(*GOOD)
            assert raw.receive_type("ack")["received"] == 1
        raw.send(*list_batch(2, [["s", "ACGT"]]))
        while (answer := raw.receive_type("ack"))["matched"] < 2:
            pass
        assert (answer["received"], answer["durable"]) == (2, 2)
        raw.send(*list_batch(1, [["other", "AAAA"]]))
        assert raw.receive_type("ack")["received"] == 2
    assert small.service.board.totals.fields()["batches"] == 2


def test_gap_is_refused_and_says_what_is_expected(small):
    with Raw(small.endpoints["ingest"]) as raw:
        raw.send(*GOOD)
        raw.send(*list_batch(3, [["c", "ACGT"]]))
        answer = raw.receive_type("refused")
        assert (answer["reason"], answer["received"], answer["seq"]) == ("gap", 1, 3)
        assert answer["message"] == "batch 3 came, but batch 2 is expected"


def test_new_epoch_counts_from_one_and_the_old_one_has_ended(small):
    with Raw(small.endpoints["ingest"]) as raw:
        raw.send(*GOOD)
        raw.send(*list_batch(1, [["b", "ACGT"]], epoch=2))
        raw.send(*list_batch(2, [["c", "ACGT"]]))
        assert raw.receive_type("refused")["reason"] == "stale-epoch"
        raw.send({"v": 1, "type": "hello", "producer": "raw", "epoch": 2})
        assert raw.receive_type("welcome")["received"] == 1


def test_credit_bounds_what_waits(path):
    limit = 1 << 20
    overrides = [f"ingest.memory_bytes={limit}", "ingest.max_batch_bytes=200000"]
    letters = b"ACGT" * 40_000
    accepted = 0
    with running(path, overrides) as daemon, Raw(daemon.endpoints["ingest"]) as raw:
        with daemon.engine_held():
            while True:
                raw.send(*columns_batch(accepted + 1, ["a"], [0, len(letters)], letters))
                answer = raw.receive()
                if answer["type"] == "refused":
                    break
                accepted += 1
                assert 0 <= answer["credit"] <= limit
            assert answer["reason"] == "credit"
            assert accepted == limit // len(letters)
            with Control(daemon.endpoints["control"]) as control:
                queue = control.status()["queue"]
            assert queue["batches"] == accepted
            assert queue["bytes"] <= limit
        while (told := raw.receive_type("ack"))["matched"] < accepted:
            pass
        assert told["credit"] >= 200_000
        raw.send(*columns_batch(accepted + 1, ["a"], [0, len(letters)], letters))
        while raw.receive_type("ack")["received"] <= accepted:
            pass


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
                raw.receive_type("ack")
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


@pytest.mark.parametrize("kind", [zmq.DEALER, zmq.REQ])
def test_control_answers_dealers_and_reqs(small, kind):
    with Raw(small.endpoints["control"], kind) as raw:
        raw.send({"v": 1, "id": "x", "command": "status"})
        answer = raw.receive()
        assert (answer["ok"], answer["id"], answer["status"]["state"]) == (True, "x", "running")
        raw.send({"v": 1, "id": 2, "command": "dance"})
        answer = raw.receive()
        assert not answer["ok"]
        assert answer["message"] == "unknown command 'dance' (known: status, drain)"
        raw.send(b"\xc1")
        assert raw.receive()["reason"] == "malformed"


# ---- start -------------------------------------------------------------------------------


@pytest.mark.parametrize("transport", ["ipc", "tcp"])
def test_endpoint_in_use_is_named(path, tmp_path, genome, transport):
    overrides = [] if transport == "ipc" else ["ingest.endpoint=tcp://127.0.0.1:*"]
    with running(path, overrides) as daemon:
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
    with pytest.raises(EndpointError, match=r"feed\.endpoint: .* a file that is no socket"):
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
    assert "not one whole 21-mer" in str(daemon.error)


def test_dead_thread_brings_the_daemon_down(path, monkeypatch):
    daemon = Running(path)
    daemon.wait_until_open()
    with Raw(daemon.endpoints["ingest"]) as raw:
        raw.send(*GOOD)
        while raw.receive_type("ack")["matched"] < 1:
            pass
        monkeypatch.setattr(Matcher, "match", lambda *_, **__: 1 // 0)
        raw.send(*list_batch(2, []))
        daemon.join()
    assert isinstance(daemon.error, StreamerError)
    assert str(daemon.error) == (
        "the engine thread failed: ZeroDivisionError: integer division or modulo by zero"
    )


# ---- the process -------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_drains_and_exits_0(path, tmp_path, number):
    with process(["run", "--config", path]) as child:
        wait_for_line(child, '"ready"')
        child.send_signal(number)
        assert '"reads": 0' in wait_for_line(child, '"ended"')
        assert child.wait(DEADLINE) == 0
    assert not list(tmp_path.glob("ingest"))


STUCK = (
    "import sys\n"
    "from streamer.daemon.engine import Engine\n"
    "Engine._take_slot = lambda self: self.stopping.wait() and False\n"
    "from streamer.cli.app import main\n"
    "sys.exit(main(sys.argv[1:]))\n"
)


@pytest.mark.parametrize(("second", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_second_signal_ends_at_once(path, tmp_path, second, code):
    with process(["run", "--config", path], STUCK) as child:
        wait_for_line(child, '"ready"')
        with Raw(f"ipc://{tmp_path}/ingest") as raw:
            raw.send({"v": 1, "type": "hello", "producer": "raw", "epoch": 1})
            while not raw.receive()["credit"]:
                raw.send({"v": 1, "type": "hello", "producer": "raw", "epoch": 1})
            raw.send(*GOOD)
            raw.receive_type("ack")
        child.send_signal(signal.SIGTERM)
        wait_for_line(child, '"draining"')
        child.send_signal(second)
        assert child.wait(DEADLINE) == code
    assert not list(tmp_path.glob("ingest"))


def test_endpoint_in_use_is_one_line_and_exit_1(path, streamer):
    with running(path):
        code, out, err = streamer("run", "--config", path)
    assert (code, out) == (1, "")
    lines = [line for line in err.splitlines() if "error" in line]
    assert len(lines) == 1
    assert "feed.endpoint" in lines[0]
    assert "in use" in lines[0]
