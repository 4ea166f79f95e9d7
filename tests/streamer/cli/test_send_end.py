"""``streamer send`` says how far it came, whatever ends it, and the daemon agrees."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from streamer.cli import daemon_options
from streamer.cli.send_files import send_all
from streamer.client import Control, Producer, producer
from streamer.client.client_errors import DaemonSilentError
from streamer.client.core import producer as account
from streamer.client.core import producer as core
from streamer.daemon import ingest
from tests.daemon_kit import process, running, wait_for_line, write_fasta
from tests.waiting import DEADLINE, until

pytestmark = pytest.mark.whole

SEQUENCE = "ACGTACGTACGTACGT"


def named(prefix, count):
    return [(f"{prefix}{i}", SEQUENCE) for i in range(1, count + 1)]


def status(folder):
    with Control(f"ipc://{folder}/control") as control:
        return control.status()


# says what it is told; it has patience until two batches are durable
TELLING = """
import sys
from streamer.client.core.producer import ProducerCore
hear, check = ProducerCore.hear, ProducerCore.check
def hear_and_tell(self, *given):
    hear(self, *given)
    print(f"told: {self.state}, {self.account.durable} durable.", file=sys.stderr, flush=True)
def check_later(self, *given):
    if self.account.durable >= 2:
        check(self, *given)
ProducerCore.hear, ProducerCore.check = hear_and_tell, check_later
from streamer.cli.app import main
sys.exit(main(sys.argv[1:]))
"""


@contextmanager
def sending(folder, *options, code=""):
    """``send`` in a process of its own, and a function that writes reads into its input."""
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    arguments = ["send", str(pipe), "--to", f"ipc://{folder}/ingest", "--batch-reads", "10"]
    with process([*arguments, *options], code) as child, open(pipe, "w") as file:

        def write(prefix, count, *, last=False):
            file.writelines(f">{name}\n{text}\n" for name, text in named(prefix, count))
            file.close() if last else file.flush()

        yield child, write


def last_lines(child):
    return child.communicate(timeout=DEADLINE)[1].splitlines()[-2:]


@pytest.mark.parametrize("quiet", [False, True])
def test_a_name_that_comes_again_is_told_once_for_a_file(path, tmp_path, streamer, quiet):
    first = write_fasta(tmp_path / "1.fa", [*named("r", 20), ("r7", SEQUENCE), ("r3", SEQUENCE)])
    second = write_fasta(tmp_path / "2.fa", named("r", 20))
    with running(path) as daemon:
        arguments = ["send", first, second, "--to", daemon.endpoints["ingest"]]
        code, _, err = streamer(*arguments, "--batch-reads", "10", *["--quiet"] * quiet)
        assert code == 0
        with Control(daemon.endpoints["control"]) as control:
            until(lambda: control.status()["totals"]["reads"] == 42, "all reads")
    line = "the name r7 comes again: both reads count; further names are not reported"
    told = [text for text in err.splitlines() if "acknowledged" not in text]
    assert told == ([] if quiet else [f"streamer: {first}: {line}"])


def test_reads_before_a_fault_arrive_and_are_counted(path, tmp_path, streamer):
    good = write_fasta(tmp_path / "good.fa", named("g", 25))
    bad = write_fasta(tmp_path / "bad.fa", [*named("b", 3), ("x", "AC-T"), *named("y", 2)])
    with running(path) as daemon:
        to = ("--to", daemon.endpoints["ingest"], "--batch-reads", 10)
        code, out, err = streamer("send", good, bad, good, *to)
        assert (code, out) == (1, "")
        assert err.splitlines() == [
            "streamer: 28 of 28 reads sent are acknowledged, the last is b3; "
            f"go on from {bad} (file 2 of 3), record 4",
            f"streamer: error: {bad}: record 4 (x), position 3: '-' is not a base",
        ]
        code, _, err = streamer("send", good, tmp_path / "none", good, *to, "--quiet")
        assert "the last is g25; go on from " in err
        assert "none (file 2 of 3), record 1\n" in err
    assert daemon.service.status.totals.fields()["reads"] == 28 + 25


def test_a_read_that_is_too_large_keeps_back_none_before_it(path, tmp_path, streamer):
    reads = write_fasta(
        tmp_path / "reads.fa", [*named("a", 5), ("long", "ACGT" * 1000), ("z", "A")]
    )
    with running(path, ["ingest.max_batch_bytes=2000"]) as daemon:
        code, _, err = streamer("send", reads, "--to", daemon.endpoints["ingest"])
    assert code == 1
    assert err.splitlines()[0] == (
        "streamer: 5 of 5 reads sent are acknowledged, the last is a5; "
        f"go on from {reads}, record 6"
    )
    assert daemon.service.status.totals.fields()["reads"] == 5


def test_a_drain_is_said_as_such_and_what_is_acknowledged_is_matched(path, tmp_path, streamer):
    reads = write_fasta(tmp_path / "reads.fa", [(f"r{i}", "ACGT" * 10_000) for i in range(1, 61)])
    limits = ["ingest.memory_bytes=1048576", "ingest.max_batch_bytes=300000"]
    with running(path, limits) as daemon:
        with daemon.engine_held():
            status = daemon.service.status

            def drain():
                until(lambda: status.queued_batches >= 3, "some batches")
                daemon.service.drain("the test")

            drains = threading.Thread(target=drain)
            drains.start()
            to = ("--to", daemon.endpoints["ingest"], "--batch-reads", 5)
            code, _, err = streamer("send", reads, *to)
            drains.join()
        daemon.join()
    count = daemon.service.status.totals.fields()["reads"]
    first, last = err.splitlines()
    assert code == 1
    assert count < 60
    assert first.startswith(f"streamer: {count} of ")
    assert first.endswith(f", the last is r{count}; go on from {reads}, record {count + 1}")
    assert "accepts no more batches (state: draining)" in last


def test_a_drain_while_nothing_is_to_be_sent_is_said_as_such(path, tmp_path, monkeypatch):
    with running(path) as daemon, sending(tmp_path, code=TELLING) as (child, write):
        # what the daemon waits for before it closes its socket
        told = SimpleNamespace(sleep=lambda _: wait_for_line(child, "told: ended"))
        monkeypatch.setattr(ingest, "time", SimpleNamespace(**(vars(time) | vars(told))))
        write("a", 21)
        wait_for_line(child, "2 durable.")
        daemon.service.drain("the test")
        daemon.join()
        write("b", 20)
        first, last = last_lines(child)
    assert child.returncode == 1
    assert "streamer: 20 of 20 reads sent are acknowledged, the last is a20; go on from" in first
    assert first.endswith(", record 21")
    assert "accepts no more batches (state: ended)" in last


def test_a_daemon_that_hangs(path, tmp_path):
    with process(["run", "--config", path]) as daemon:
        wait_for_line(daemon, '"ready"')
        with sending(tmp_path, "--timeout", "1", code=TELLING) as (child, write):
            write("a", 21)
            wait_for_line(child, "2 durable.")
            daemon.send_signal(signal.SIGSTOP)
            write("b", 20, last=True)
            first, last = last_lines(child)
    assert child.returncode == 1
    assert first.startswith("streamer: 20 of ")
    assert "reads sent are acknowledged, the last is a20 (" in first
    assert first.endswith(", record 21")
    assert "no answer within 1 s" in last


def test_an_interrupt(path, tmp_path):
    with process(["run", "--config", path]) as daemon:
        wait_for_line(daemon, '"ready"')
        with sending(tmp_path) as (child, write):
            write("a", 35)
            until(lambda: status(tmp_path)["totals"]["reads"] == 30, "three batches")
            child.send_signal(signal.SIGINT)
            first, last = last_lines(child)
    assert child.returncode == 130
    assert first.startswith("streamer: 30 of 30 reads sent are acknowledged, the last is a30; ")
    assert first.endswith(", record 31")
    assert last == "streamer: error: interrupted"


def test_an_interrupt_waits_for_no_daemon_that_is_started_anew(capsys, monkeypatch):
    """``send --watch`` waits for one for --timeout; a second Ctrl-C ends that."""
    monkeypatch.setattr(daemon_options, "ANSWER_SECONDS", 0.3)

    class Waiting(SimpleNamespace):
        def flush(self, timeout):
            raise KeyboardInterrupt

        def settle(self, timeout):
            self.waited = self.answer_seconds
            raise DaemonSilentError(self.endpoint, self.answer_seconds)

    waiting = Waiting(
        endpoint="ipc:///x", answer_seconds=300.0, heed=lambda: None,
        reads_acknowledged=1, reads_sent=3, last_acknowledged="a", reads_matched=2,
    )  # fmt: skip

    class Nothing(list):
        def resume_hint(self, reads):
            return "go on"

    with pytest.raises(KeyboardInterrupt):
        send_all(waiting, Nothing(), 300.0)
    assert waiting.waited == 0.3
    assert "1 of 3 reads sent are acknowledged, the last is a (2 are" in capsys.readouterr().err


# ---- from Python ---------------------------------------------------------------------------


def interrupted_after(lines):
    """A trace function that interrupts at that line of the producer's code."""
    left = [lines]
    traced = {module.__file__ for module in (producer, producer, core, account)}

    def trace(frame, event, argument):
        if frame.f_code.co_filename not in traced:
            return None
        if event == "line":
            left[0] -= 1
            if not left[0]:
                raise KeyboardInterrupt
        return trace

    return trace


def test_an_interrupt_at_any_line_leaves_the_count_exact(path):
    """What is acknowledged is what the daemon has, and it has every read once."""
    interrupts = 0
    with running(path) as daemon, Producer(daemon.endpoints["ingest"]) as sender:
        sender.connect()
        for lines in range(1, 140):
            before = sys.gettrace()
            sys.settrace(interrupted_after(lines))
            try:
                sender.send([(f"r{lines}", SEQUENCE), ("", "")])
                sender.flush()
            except KeyboardInterrupt:
                interrupts += 1
            finally:
                sys.settrace(before)
            sender.settle(timeout=DEADLINE)
            known = daemon.service._ingest.core.producers.find(sender.name)
            assert (known.epoch, known.received) == (sender.epoch, sender.durable), lines
            assert sender.reads_acknowledged == 2 * sender.durable
        sender.flush(matched=True)
        assert sender.reads_sent == sender.reads_acknowledged == sender.reads_matched
        assert daemon.service.status.totals.fields()["reads"] == sender.reads_acknowledged
    assert interrupts > 30


def test_an_account_takes_back_what_a_daemon_lost():
    held = [account.Batch([], 1, 0, 10, f"r{i}", sent=1) for i in range(4)]
    kept = account.Account(1, held=held).advanced(3, 1)
    assert (kept.acknowledged.reads, kept.matched.reads, kept.sent) == (30, 10, 40)
    lost = kept.restarted(2, 2)
    assert (lost.acknowledged.reads, lost.acknowledged.last, lost.sent) == (10, "r0", 40)
    assert (lost.durable, lost.total, lost.epoch) == (0, 1, 2)
    refused = kept.without(4, 2)
    assert (refused.acknowledged.reads, refused.sent, refused.total) == (30, 40, 0)
    assert refused.advanced(0, 0).matched.reads == 10
