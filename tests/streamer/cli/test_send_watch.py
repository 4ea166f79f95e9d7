"""``streamer send --watch``: the folder of a run, until it is over, over restarts of all."""

from __future__ import annotations

import gzip
import os
import random
import signal
from contextlib import ExitStack

import pytest

from tests.daemon_kit import collecting, process, running, wait_for_line
from tests.streamer.cli.test_play import fastq
from tests.streamer.watching.kit import named, record, text_of, write
from tests.waiting import DEADLINE, until

pytestmark = pytest.mark.whole


@pytest.fixture(autouse=True)
def own_state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def run(tmp_path):
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


def watch(run, daemon, *options):
    endpoint = daemon.endpoints["ingest"]
    return ["send", "--watch", str(run), "--to", endpoint, "--settle", "0.2", *options]


def said(err, run):
    lines = [line.removeprefix("streamer: ") for line in err.splitlines()]
    return [line.replace(f"{run}/", "") for line in lines if "watches" not in line]


def test_a_run_from_its_first_file_to_its_summary(path, run):
    """The folder is filled while it is watched; the ledger is where programs keep their state."""
    with collecting(path) as (daemon, names), process(watch(run, daemon)) as child:
        assert f"as {os.uname().nodename}:{run}, with {run.parent}/state/streamer/watch-" in (
            wait_for_line(child, "watches")
        )
        with open(run / "a.fastq", "w") as file:
            for name in named("a", 3):
                file.write(record(name))
                file.flush()
                until(lambda name=name: name in names, "the read of a file that grows")
        write(run / "fastq_pass/barcode01/b.fastq.gz", text_of(named("b", 50)))
        until(lambda: "b49" in names, "the reads of a file that is complete")
        write(run / "c.fastq.gz", text_of(named("c", 50)))
        (run / "final_summary_x.txt").touch()
        assert child.wait(DEADLINE) == 0
        assert "103 reads, 3,090 bases acknowledged" in child.stderr.read()
    assert sorted(names) == sorted([*named("a", 3), *named("b", 50), *named("c", 50)])


def test_the_same_command_goes_on_and_other_names_begin_anew(path, run, streamer):
    write(run / "a.fastq.gz", text_of(named("a", 5)))
    (run / "RTAComplete.txt").touch()
    with collecting(path) as (daemon, names):
        assert streamer(*watch(run, daemon, "-q"))[::2] == (0, "")
        write(run / "b.fastq", text_of(named("b", 5)))
        code, _, err = streamer(*watch(run, daemon))
        assert code == 0
        assert "1 files were read before" in err
        assert said(err, run)[-1].startswith("5 reads, 150 bases acknowledged")
        assert streamer(*watch(run, daemon, "-q", "--name", "other"))[0] == 0
    assert names[:10] == [*named("a", 5), *named("b", 5)]
    assert sorted(names[10:]) == sorted(names[:10])


def test_a_pattern_of_ones_own_ends_it(path, run, streamer):
    write(run / "a.fastq", text_of(["a"]))
    (run / "final_summary_x.txt").touch()
    with collecting(path) as (daemon, names):
        arguments = watch(run, daemon, "--until", "*.done", "--until", "other")
        with process(arguments) as child:
            until(lambda: names, "the read")
            write(run / "b.fastq", text_of(["b"]))
            (run / "deep").mkdir()
            (run / "deep/x.done").touch()
            assert child.wait(DEADLINE) == 0
    assert names == ["a", "b"]


def test_an_interrupt_sends_what_was_read_and_says_so(path, run):
    write(run / "a.fastq", text_of(named("a", 500)))
    with collecting(path) as (daemon, names):
        with process(watch(run, daemon, "--batch-reads", "10", "--name", "x")) as child:
            until(lambda: len(names) > 50, "reads")
            child.send_signal(signal.SIGINT)
            assert child.wait(DEADLINE) == 130
            err = child.stderr.read()
        assert f"stopped: {len(names)} reads, {30 * len(names):,} bases acknowledged" in err
        assert "Traceback" not in err
        (run / "final_summary_x.txt").touch()
        with process(watch(run, daemon, "-q", "--name", "x")) as child:
            assert child.wait(DEADLINE) == 0
    assert names == named("a", 500)


def test_what_is_given_up_is_one_line_each_and_exit_code_1(path, run, streamer):
    packed = gzip.compress(text_of(named("b", 50)).encode())
    (run / "b.fastq.gz").write_bytes(packed[:-20])
    write(run / "c.fastq", record("c0") + record("c1").replace("A", "?"))
    (run / "d.bam").write_bytes(packed)
    (run / "final_summary_x.txt").touch()
    with collecting(path) as (daemon, names):
        code, _, err = streamer(*watch(run, daemon))
        assert code == 1
        assert sorted(line for line in said(err, run) if line.startswith("error")) == [
            "error: b.fastq.gz: the compressed stream is truncated: given up",
            "error: c.fastq: record 2 (c1), position 3: '?' is not a base",
        ]
        (run / "b.fastq.gz").write_bytes(packed)
        (run / "c.fastq").unlink()
        assert streamer(*watch(run, daemon, "-q"))[0] == 0
    assert sorted(names) == sorted([*named("b", 50), "c0"])


def test_a_read_that_is_too_large_is_passed_over(path, run, streamer):
    """Each is named and counted; it is passed over once, also as the last one of a run."""

    def large(name):
        return record(name, length=4000)

    write(run / "a.fastq", text_of(named("a", 5)) + large("x") + large("y") + record("a5"))
    write(run / "b.fastq.gz", large("z"))
    (run / "final_summary_x.txt").touch()
    limit = ["ingest.max_batch_bytes=2000"]
    with collecting(path, limit) as (daemon, names):
        code, _, err = streamer(*watch(run, daemon))
        assert code == 1
        exceeds = "bytes exceeds 2000 bytes (ingest.max_batch_bytes): passed over"
        errors = [line for line in said(err, run) if line.startswith("error")]
        assert [line.partition(": a message of ")[0] for line in errors[:-1]] == [
            f"error: {where}"
            for where in (
                "a.fastq: record 6 (x)",
                "a.fastq: record 7 (y)",
                "b.fastq.gz: record 1 (z)",
            )
        ]
        assert all(line.endswith(exceeds) for line in errors[:-1])
        assert errors[-1] == (
            "error: passed over 3 reads that are too large for the daemon; 6 are acknowledged"
        )
        write(run / "c.fastq", record("c"))
        code, _, err = streamer(*watch(run, daemon))
        assert (code, [line for line in said(err, run) if "error" in line]) == (0, [])
        # more in the same file
        write(run / "c.fastq", record("c") + large("w") + record("c1"))
        assert streamer(*watch(run, daemon))[0] == 1
    assert names == [*named("a", 6), "c", "c1"]


def test_a_daemon_that_is_started_anew_is_waited_for(path, run):
    journal = ['journal.durability="os"', f'journal.directory="{run.parent}/journal"']
    with ExitStack() as stack:
        with collecting(path, journal) as (daemon, before):
            child = stack.enter_context(process(watch(run, daemon)))
            wait_for_line(child, "watches")
            write(run / "a.fastq", text_of(named("a", 5)))
            until(lambda: len(before) == 5, "the reads of the first file")
        write(run / "b.fastq", text_of(named("b", 5)))
        with collecting(path, journal) as (daemon, after):
            (run / "final_summary_x.txt").touch()
            assert child.wait(DEADLINE) == 0
    assert (before, after) == (named("a", 5), named("b", 5))


UNWATCHED = [
    ([], 2, "name either files of reads (READS) or a folder (--watch)"),
    (["x.fa", "--watch", "."], 2, "name either files of reads (READS) or a folder (--watch)"),
    (["--watch", ".", "--threads", "2"], 2, "--threads goes with READS, --watch has one"),
    (["x.fa", "--settle", "0"], 2, "--settle goes with --watch"),
    (["x.fa", "--until", "end*"], 2, "--until goes with --watch"),
    (["x.fa", "--ledger", "file"], 2, "--ledger goes with --watch"),
    (["--watch", ".", "--settle", "-1"], 2, "Invalid value for '--settle'"),
    (["--watch", "{}/none"], 1, "{}/none: no such file or directory"),
    (["--watch", "{}/file"], 1, "{}/file: is not a folder"),
    (["--watch", ".", "--ledger", "{}/file"], 1, "{}/file: file is not a database"),
    (["--watch", ".", "--ledger", "{}/file/x"], 1, "{}/file/x: "),
]


def test_what_cannot_be_watched_is_one_line(path, tmp_path, streamer):
    (tmp_path / "file").write_text("this is no ledger\n" * 100)
    with running(path) as daemon:
        for arguments, code, problem in UNWATCHED:
            words = [word.format(tmp_path) for word in arguments]
            found, _, err = streamer("send", *words, "--to", daemon.endpoints["ingest"])
            assert found == code, arguments
            assert f"error: {problem.format(tmp_path)}" in err
            assert len(err.splitlines()) == 1


def test_two_watchers_of_one_ledger(path, run, streamer):
    with running(path) as daemon, process(watch(run, daemon)) as child:
        wait_for_line(child, "watches")
        code, _, err = streamer(*watch(run, daemon))
        assert code == 1
        assert err.endswith(".ledger: another process uses this ledger\n")


def test_a_run_that_is_played_gives_what_its_file_gives(path, run, tmp_path, streamer):
    reads = tmp_path / "reads.fq"
    fastq(reads, random.Random(5), 400, barcodes=["barcode02", "unclassified"])
    play = ["play", str(reads), "--folder", str(run), "--speed", "100", "--file-reads", "40", "-q"]
    with (
        collecting(path) as (daemon, names),
        process(play) as player,
        process(watch(run, daemon, "-q")) as child,
    ):
        assert player.wait(DEADLINE) == 0
        assert child.wait(DEADLINE) == 0
    assert sorted(names) == sorted(named("reads", 400))
