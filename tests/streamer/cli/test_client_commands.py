"""send, watch and status: the commands that talk to a running daemon."""

from __future__ import annotations

import json
import random
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor

import pytest

from streamer import selftest
from streamer.cli.app import main
from streamer.cli.daemon_options import open_control
from streamer.cli.status import print_table
from streamer.client import (
    Control,
    Subscriber,
)
from streamer.daemon import engine
from tests.daemon_kit import GENOME, Running, drained, reads_of, running, write_fasta
from tests.waiting import DEADLINE, until

pytestmark = pytest.mark.whole


@pytest.fixture
def reads_file(tmp_path):
    return write_fasta(tmp_path / "reads.fa", reads_of(GENOME, random.Random(1), 50))


@pytest.fixture
def nobody(tmp_path):
    return f"ipc://{tmp_path}/nobody"


def test_send_watch_and_status(path, reads_file, streamer):
    with running(path, ["feed.beat_seconds=0.05"]) as daemon:
        watched = deque()

        def look():
            with Subscriber(daemon.endpoints["feed"], ["read"]) as feed:
                assert feed.wait_for_daemon(DEADLINE)
                started.set()
                watched.append(feed.receive(DEADLINE))

        started = threading.Event()
        thread = threading.Thread(target=look)
        thread.start()
        assert started.wait(DEADLINE)
        code, out, err = streamer("send", reads_file, "--to", daemon.endpoints["ingest"])
        thread.join(DEADLINE)
        assert not thread.is_alive()
        assert (code, out) == (0, "")
        assert "streamer: 50 reads" in err
        assert len(watched[0].read) == 50
        code, out, _ = streamer("status", "--config", path, "--format", "jsonl")
        assert code == 0
        assert json.loads(out)["totals"]["reads"] == 50
        code, out, _ = streamer("status", "--config", path)
        assert "reads on target" in out
        code, out, _ = streamer("status", "--config", path, "--format", "tsv")
        assert "totals.reads\t50" in out.splitlines()
        code, out, _ = streamer("watch", "--config", path, "--topic", "beat", "--count", "2")
        assert code == 0
        header, *rows = out.splitlines()
        assert header.split("\t")[:3] == ["#topic", "state", "reads"]
        assert [row.split("\t")[:3] for row in rows] == [["beat", ".", "50"]] * 2
        code, out, _ = streamer(
            "watch", "--config", path, "--topic", "beat", "--count", "1", "--format", "jsonl"
        )
        assert json.loads(out)["reads"] == 50


def test_status_shows_what_is_stuck_and_every_endpoint(path, capsys):
    waits = {"waits_for": "room on the disk of /data/[run 7]", "seconds": 12.3}
    endpoints = {"metrics": "127.0.0.1:9771", "web": "127.0.0.1:9772", "sync": "ipc:///[red]/s"}
    with running(path) as daemon, Control(daemon.endpoints["control"]) as control:
        answer = control.status()
    print_table(answer | {"stuck": {"journal": waits}, "endpoints": endpoints})
    lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    rows = {name: text.rstrip() for name, text in lines}
    assert {name: rows[name] for name in endpoints} == endpoints
    assert rows["stuck:"] == "journal   for 12 s, waits for room on the disk of /data/[run 7]"


def test_watch_ends_with_its_time_and_with_the_daemon(path, streamer):
    with running(path, ["feed.beat_seconds=0.05"]) as daemon:
        code, out, _ = streamer("watch", "--config", path, "--for", "0.2")
        assert code == 0
        header = "topic read start end event windows target length matches mismatches skipped"
        last = "best_target channel barcode batch"
        assert out == "#" + "\t".join([*header.split(), *last.split()]) + "\n"
        daemon.wait_for_subscriptions()

        def drain():
            daemon.wait_for_subscriptions("beat")
            daemon.service.drain("enough")

        thread = threading.Thread(target=drain)
        thread.start()
        code, out, err = streamer("watch", "--config", path)
        thread.join(DEADLINE)
    assert code == 0
    assert err == "streamer: the daemon has ended\n"


def test_watch_rows_are_those_of_match(path, reads_file, tmp_path, streamer):
    with running(path, ["feed.beat_seconds=0.05"]) as daemon:
        rows = tmp_path / "rows.tsv"
        total = {}

        def look():
            arguments = ["watch", "--config", path, "--topic", "match", "--topic", "mismatch"]
            total["code"] = main([*arguments, "-o", str(rows)])

        thread = threading.Thread(target=look)
        thread.start()
        daemon.wait_for_subscriptions("match", "mismatch", "beat")
        code, _, _ = streamer("send", reads_file, "--to", daemon.endpoints["ingest"], "-q")
        assert code == 0
    # it ends with the daemon
    thread.join(DEADLINE)
    assert not thread.is_alive()
    genome = reads_file.parent / "genome.fa"
    _, out, _ = streamer("match", reads_file, "-d", genome, "-k", 11, "-q")
    expected = sorted(out.splitlines()[1:])
    got = [line.split("\t")[1:-1] for line in rows.read_text().splitlines()[1:]]
    assert sorted("\t".join(line) for line in got) == expected
    assert total["code"] == 0


@pytest.mark.parametrize("form", ["tsv", "jsonl"])
def test_names_beyond_ascii_come_out_of_the_feed(form, path, tmp_path, streamer):
    names = ["é1", "r2", "読み"]
    reads = tmp_path / "reads.fq"
    headers = [name.encode() + b" caf\xe9" for name in names]
    reads.write_bytes(b"".join(b"@%b\nACGTACGTACGTACGT\n+\n%b\n" % (h, b"I" * 16) for h in headers))
    rows = tmp_path / "rows"
    codes = []
    with running(path, ["feed.beat_seconds=0.05"]) as daemon:

        def look():
            arguments = ["watch", "--config", path, "--topic", "read", "--format", form]
            codes.append(main([*arguments, "-o", str(rows), "--count", "3"]))

        thread = threading.Thread(target=look)
        thread.start()
        daemon.wait_for_subscriptions("read", "beat")
        code, _, _ = streamer("send", reads, "--to", daemon.endpoints["ingest"], "-q")
        thread.join(DEADLINE)
    assert not thread.is_alive()
    assert (code, codes) == (0, [0])
    lines = rows.read_text(encoding="utf-8").splitlines()
    if form == "jsonl":
        assert [json.loads(line)["read"] for line in lines] == names
    else:
        assert [line.split("\t")[1] for line in lines[1:]] == names


def test_send_without_a_daemon_is_one_line(nobody, reads_file, streamer):
    code, out, err = streamer("send", reads_file, "--to", nobody, "--timeout", "0.3")
    assert (code, out) == (1, "")
    assert err == f"streamer: error: {nobody}: no answer within 0.3 s: is the daemon running?\n"


def test_send_to_the_control_socket_is_told_at_once(path, reads_file, streamer):
    with running(path) as daemon:
        code, out, err = streamer("send", reads_file, "--to", daemon.endpoints["control"])
    assert (code, out) == (1, "")
    assert "is the control socket of a daemon" in err


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (["send", "x.fa", "--to", "tcp://10.0.0.1:5"], 2, "not on this machine"),
        (["send", "x.fa", "--to", "nonsense"], 2, "is not an endpoint"),
        (["status", "--at", "tcp://127.0.0.1:*"], 2, "leaves the port open"),
        (["watch", "--topic", "nonsense", "--from", "ipc:///tmp/x"], 2, "unknown topic"),
        (["watch", "--count", "0"], 2, "count"),
        (["run", "--config", "/nowhere"], 1, "cannot be read"),
        (["run", "--set", "dictionary.k=0"], 1, "dictionary.k"),
    ],
)
def test_bad_arguments(arguments, code, word, streamer):
    got, out, err = streamer(*arguments)
    assert (got, out) == (code, "")
    assert word in err


# ---- ready or not ------------------------------------------------------------------------------


def test_status_waits_for_a_daemon_that_has_not_started(path, monkeypatch):
    asked = threading.Event()

    def noted(*options):
        asked.set()
        return open_control(*options)

    monkeypatch.setattr("streamer.cli.status.open_control", noted)
    with ThreadPoolExecutor(1) as pool:
        outcome = pool.submit(main, ["status", "--config", path, "--wait", str(DEADLINE)])
        assert asked.wait(DEADLINE)
        with running(path):
            assert outcome.result(DEADLINE) == 0


def test_status_waits_for_a_daemon_that_is_starting(path, monkeypatch, streamer):
    loaded = threading.Event()
    load = engine.load_dictionary

    def late(*arguments, **options):
        assert loaded.wait(DEADLINE)
        return load(*arguments, **options)

    monkeypatch.setattr(engine, "load_dictionary", late)
    with drained(Running(path)):
        code, out, err = streamer("status", "--config", path, "--wait", "0")
        assert (code, out) == (1, "")
        assert err.endswith("control: after 0 s still starting\n")
        # whoever does not wait sees the state
        code, out, _ = streamer("status", "--config", path, "--format", "jsonl")
        assert json.loads(out)["state"] == "starting"
        loaded.set()
        code, out, _ = streamer("status", "--config", path, "--wait", DEADLINE, "--format", "jsonl")
        assert json.loads(out)["state"] == "running"


def test_status_waits_until_a_topic_is_watched(path, streamer):
    with running(path) as daemon:
        waiting = ["status", "--config", path, "--topic", "near", "--topic", "read", "--wait"]
        with Subscriber(daemon.endpoints["feed"], ["near"]):
            daemon.wait_for_subscriptions("near")
            code, out, err = streamer(*waiting, "0")
            assert (code, out) == (1, "")
            assert err.endswith("control: after 0 s nobody watches read\n")
            with Subscriber(daemon.endpoints["feed"], ["read"]):
                assert streamer(*waiting, DEADLINE)[0] == 0
    assert streamer("status", "--topic", "near")[0] == 2


@pytest.mark.parametrize("format_", ["tsv", "jsonl"])
def test_what_is_sent_once_watch_is_ready_is_not_missed(path, reads_file, tmp_path, format_):
    ready, rows = tmp_path / "ready", tmp_path / "rows"
    ready.write_text("of an earlier run")
    watch = ["watch", "--topic", "read", "--count", "50", "--format", format_, "-o", rows]
    with running(path) as daemon, ThreadPoolExecutor(1) as pool:
        options = ["--config", path, "--ready-file", ready, "--quiet"]
        outcome = pool.submit(main, [str(word) for word in (*watch, *options)])
        until(lambda: ready.exists() and "feed" in ready.read_text(), "ready")
        assert main(["send", str(reads_file), "--config", path, "--quiet"]) == 0
        assert outcome.result(DEADLINE) == 0
        assert daemon
    assert len(rows.read_text().splitlines()) == 50 + (format_ == "tsv")


@pytest.mark.slow
def test_the_cpu(streamer):
    code, out, _ = streamer("selftest", "--device", "cpu")
    assert code == 0
    lines = [line.split("\t") for line in out.splitlines()]
    assert {line[1] for line in lines} >= {"frozen, index", "grow, walk", "distance 3, pieces"}
    assert all(line[0] == "cpu" and line[2] == "ok" for line in lines)


def test_wrong_results_are_told(streamer, monkeypatch):
    monkeypatch.setattr(selftest, "on_cpu", lambda: [selftest.Outcome("cpu", "grow, walk", False)])
    code, out, err = streamer("selftest", "--device", "cpu")
    assert code == 1
    assert "WRONG" in out
    assert err.splitlines()[-1] == "streamer: error: wrong results: grow, walk"


def test_a_slow_result_names_only_causes_that_were_seen():
    def line(rate, *causes):
        return selftest.Outcome("cuda", "frozen", True, rate, 1e9, "an H200", causes).line()

    assert line(9e8, "12 cores").endswith("\tok\t900 M bases/s; an H200 reached 1000 M")
    assert line(4e8).endswith("reached 1000 M; low: no cause was seen")
    assert line(4e8, "2 cores", "a bus").endswith("; low: 2 cores, a bus")


def test_other_programs_are_seen(monkeypatch):
    # seconds: the clock; all cores, busy; taken by the host; this process
    readings = iter([(0.0, 10.0, 0.0, 5.0), (2.0, 14.0, 0.0, 7.0), (4.0, 16.0, 3.0, 9.0)])
    monkeypatch.setattr(selftest.Watch, "_now", staticmethod(lambda: next(readings)))
    monkeypatch.setattr(selftest, "usable_cores", lambda: 4)
    watch = selftest.Watch("cpu")
    assert watch.causes() == ("other programs kept 1.0 of 4 cores busy",)
    assert watch.causes() == (
        "other programs kept 0.5 of 4 cores busy",
        "the host of this virtual machine took 0.8 of its cores",
    )


def test_the_machine_is_read():
    clock, busy, stolen, own = selftest.Watch._now()
    assert clock > 0
    assert busy >= own > 0
    assert stolen >= 0
