"""``streamer send`` says how far it came, whatever ends it, and goes on there."""

from __future__ import annotations

import gzip
import os
import random
import signal
import sys
import threading
import time
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace

import pytest

from streamer.cli import daemon_options
from streamer.cli.send_files import SendMark, send_all
from streamer.client import Control, Producer, producer
from streamer.client.client_errors import DaemonSilentError
from streamer.client.core import producer as account
from streamer.client.core import producer as core
from streamer.daemon import ingest
from streamer.daemon.process import state_of
from streamer.errors import StreamerError, UsageError
from tests.daemon_kit import collecting, process, running, wait_for_line, write_fasta
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
        # silence ends it: with one limit for both, the lack of progress might be first
        code = f"from streamer.cli import daemon_options as o; o.ANSWER_SECONDS = 1.0\n{TELLING}"
        with sending(tmp_path, "--timeout", str(DEADLINE), code=code) as (child, write):
            write("a", 21)
            wait_for_line(child, "2 durable.")
            daemon.send_signal(signal.SIGSTOP)
            until(lambda: "stopped" in state_of(daemon.pid), "the daemon stands still")
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

    with pytest.raises(KeyboardInterrupt):
        send_all(waiting, [], lambda reads: "go on", 300.0)
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
    kept = account.Account(1, kept=held).advanced(3, 1)
    assert (kept.acknowledged.reads, kept.matched.reads, kept.sent) == (30, 10, 40)
    lost = kept.restarted(2, 2)
    assert (lost.acknowledged.reads, lost.acknowledged.last, lost.sent) == (10, "r0", 40)
    assert (lost.durable, lost.total, lost.epoch) == (0, 1, 2)
    refused = kept.without(4, 2)
    assert (refused.acknowledged.reads, refused.sent, refused.total) == (30, 40, 0)
    assert refused.advanced(0, 0).matched.reads == 10


def lines(err):
    return [line.removeprefix("streamer: ") for line in err.splitlines()]


def far_enough(child, names, count):
    return len(names) >= count or child.poll() is not None


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2))])
def test_kills_at_random_moments(path, tmp_path, seed):
    rng = random.Random(seed)
    plain = write_fasta(tmp_path / "a.fa", named("a", 3000))
    packed = tmp_path / "b.fq.gz"
    with gzip.open(packed, "wt") as file:
        file.writelines(f"@{n}\n{s}\n+\n{'I' * len(s)}\n" for n, s in named("b", 3000))
    last = write_fasta(tmp_path / "c.fa", named("c", 1500))
    sent = ["send", plain, packed, last, "--name", "run", "--resume", "--batch-reads", 7]
    kills = 0
    with collecting(path) as (daemon, names):
        while True:
            upto = rng.randrange(200, 3000)
            arguments = [str(word) for word in [*sent, "--to", daemon.endpoints["ingest"]]]
            with process(arguments) as child:
                until(partial(far_enough, child, names, len(names) + upto), "reads, or its end")
                child.send_signal(signal.SIGKILL)
                code = child.wait(DEADLINE)
            if code == 0:
                break
            assert code == -signal.SIGKILL
            kills += 1
    assert names == [name for name, _ in [*named("a", 3000), *named("b", 3000), *named("c", 1500)]]
    assert kills >= 2


def test_a_run_that_is_complete_sends_nothing_and_what_was_added_is_sent(path, tmp_path, streamer):
    reads = write_fasta(tmp_path / "a.fa", named("a", 30))
    more = write_fasta(tmp_path / "b.fa", named("b", 5))
    with collecting(path) as (daemon, names):
        send = ("send", "--to", daemon.endpoints["ingest"], "--name", "x", "--batch-reads", 7)
        code, _, err = streamer(*send, reads, "--resume")
        assert code == 0
        assert lines(err)[0] == "nothing is durable under the name x: begins with the first record"
        code, _, err = streamer(*send, reads, "--resume")
        assert code == 0
        assert lines(err)[0] == f"skips the 30 durable records of {reads}, then goes on"
        assert lines(err)[1].startswith("0 reads, 0 bases acknowledged")
        assert len(names) == 30
        write_fasta(reads, named("a", 33))
        code, _, err = streamer(*send, reads, more, "--resume")
        assert code == 0
        assert lines(err)[0].startswith(f"skips the 30 durable records of {reads} (file 1 of 2)")
        assert lines(err)[1].startswith("8 reads")
        # without --resume all are sent
        assert streamer(*send, more, "-q")[0] == 0
    assert names == [name for name, _ in [*named("a", 33), *named("b", 5), *named("b", 5)]]


def test_standard_input_goes_on_behind_as_many_records(path, tmp_path):
    with collecting(path) as (daemon, names):
        send = ["send", "-", "--to", daemon.endpoints["ingest"], "--name", "x", "--resume"]
        for count in (20, 50):
            data = write_fasta(tmp_path / "reads.fa", named("a", count))
            with open(data) as stdin, process([*send, "-q"], stdin=stdin) as child:
                assert child.wait(DEADLINE) == 0
    assert names == [name for name, _ in named("a", 50)]


def test_how_far_it_came_counts_what_was_skipped(path, tmp_path, streamer):
    reads = write_fasta(tmp_path / "a.fa", [*named("a", 20), ("x", "AC-T")])
    with collecting(path) as (daemon, names):
        send = ("send", reads, "--to", daemon.endpoints["ingest"], "--name", "x", "--resume")
        for sent, last in ((20, ", the last is a20"), (0, "")):
            code, _, err = streamer(*send)
            assert code == 1
            assert lines(err)[1] == (
                f"{sent} of {sent} reads sent are acknowledged{last}; go on from {reads}, record 21"
            )
    assert names == [name for name, _ in named("a", 20)]


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        (named("a", 19), "{}: has 19 records, but 20 are durable: it has changed"),
        ([], "{}: has 0 records, but 20 are durable: it has changed"),
        (
            [*named("a", 19), *named("b", 4)],
            "{}: record 20: is not the last durable one (b1): the file has changed",
        ),
    ],
)
def test_a_file_that_has_changed_is_one_line(path, tmp_path, streamer, changed, problem):
    reads = write_fasta(tmp_path / "a.fa", named("a", 20))
    with collecting(path) as (daemon, names):
        send = ("send", reads, "--to", daemon.endpoints["ingest"], "--name", "x", "--resume")
        assert streamer(*send)[0] == 0
        write_fasta(reads, changed)
        code, _, err = streamer(*send, "-q")
        assert code == 1
        assert [line for line in lines(err) if line.startswith("error")] == [
            "error: " + problem.format(reads)
        ]
        assert len(names) == 20


def test_other_files_and_other_marks_are_one_line(path, tmp_path, streamer):
    one, two = (write_fasta(tmp_path / f"{n}.fa", named(n, 20)) for n in ("a", "b"))
    with collecting(path) as (daemon, names):
        send = ("send", "--to", daemon.endpoints["ingest"], "--name", "x", "-q")
        assert streamer(*send, one, two)[0] == 0
        had = (
            f"error: producer 'x' has come to file 2 ({two}): give the same files in the same order"
        )
        for files, problem in (
            ([one], f"{had}, not 1"),
            ([two, two], f"{had}, not {two} or others before it"),
            ([two, one], f"{had}, not {one} or others before it"),
        ):
            code, _, err = streamer(*send, *files, "--resume")
            assert (code, lines(err)) == (1, [problem])
        with Producer(daemon.endpoints["ingest"], name="x") as producer:
            producer.send([("mine", "ACGT")], mark=b"my own")
        code, _, err = streamer(*send, one, two, "--resume")
        assert code == 1
        assert lines(err)[0].startswith("error: the mark of producer 'x' was not made by")
    assert len(names) == 41


def test_resume_without_a_name_is_a_usage_error(streamer):
    code, _, err = streamer("send", "x.fa", "--resume")
    assert (code, lines(err)) == (
        2,
        ["error: --resume needs --name, that of the run to go on with"],
    )


# ---- marks ---------------------------------------------------------------------------------------


def test_a_mark_is_small_however_long_the_path():
    paths = ["x" * 5000, "é" * 3000, "-"]
    for file, path in enumerate(paths):
        packed = SendMark.at(paths, file, 2**40, path).pack()
        assert len(packed) <= 256
        assert SendMark.unpack(packed, [*paths, "more"], "p").records == 2**40


@pytest.mark.parametrize("mark", [b"\x01", b"\xc1", b"", b"\x92\x01\x02", b"\xa3abc"])
def test_a_mark_of_another_program(mark):
    with pytest.raises(StreamerError, match="was not made by"):
        SendMark.unpack(mark, ["a"], "p")


def test_marks_from_python(path):
    """Of a batch that is split each part has its own, or repeats the one before."""
    reads = [(f"r{i}", "ACGT" * 100) for i in range(20)]
    with running(path, ["ingest.max_batch_bytes=2000"]) as daemon:
        made = []
        forward = daemon.service._ingest._forward
        daemon.service._ingest._forward = lambda item: (made.append(item), forward(item))
        with Producer(daemon.endpoints["ingest"], name="x") as producer:
            producer.connect()
            assert producer.mark == b""
            producer.send(reads[:1], mark=b"first")
            producer.send(reads, mark=b"second")
            producer.send(reads, mark=lambda done: b"%d" % done)
            with pytest.raises(UsageError, match="a mark has at most 256 bytes, not 257"):
                producer.send(reads[:1], mark=bytes(257))
        with Producer(daemon.endpoints["ingest"], name="x") as producer:
            producer.connect()
            assert producer.mark == b"20"
    parts = sum(item.key.mark == b"first" for item in made)
    assert parts > 2
    assert [item.key.mark for item in made[:parts]] == [b"first"] * parts
    assert made[parts].key.mark == b"second"
    done = 0
    for item in made[parts + 1 :]:
        done += len(item.batch)
        assert item.key.mark == b"%d" % done
    assert done == 20
