"""Standard streams that nobody reads: 141 for results, and messages that are simply lost."""

from __future__ import annotations

import os
import random
import subprocess
import sys

import pytest

from tests import forked
from tests.daemon_kit import random_dna, running
from tests.data_files import write_fasta

pytestmark = pytest.mark.whole

PROGRAM = [sys.executable, "-m", "streamer"]
GENOME = random_dna(random.Random(5), 400)


@pytest.fixture
def run_unread(tmp_path):
    """A command line with a pipe that nobody reads as its standard output or error."""
    files = {
        "genome": write_fasta(tmp_path / "g.fa", [("g", GENOME)]),
        "other": write_fasta(tmp_path / "o.fa", [("o", GENOME[::-1])]),
        "bad": write_fasta(tmp_path / "bad.fa", [("b", "ACGT!")]),
    }

    def run_unread(line, stream="stdout", **more):
        words = line.format(**files | more).split()
        reader, writer = os.pipe()
        os.close(reader)
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | {stream: writer}
        done = forked.run([*PROGRAM, *words], **streams)
        os.close(writer)
        return done

    return run_unread


@pytest.mark.parametrize(
    "line",
    [
        "--help",
        "devices",
        "match {genome} -d {genome} -k 11 -q",
        "lcs {genome} {other} -q -o /dev/stdout",
    ],
)
def test_results_that_nobody_reads(line, run_unread):
    done = run_unread(line)
    # without a GPU, devices says so before
    said = b"" if line != "devices" else done.stderr
    assert (done.returncode, done.stderr) == (141, said)


def test_the_answers_of_a_daemon_that_nobody_reads(run_unread, path):
    with running(path, ["feed.beat_seconds=0.05"]):
        for line in (
            "status --config {path}",
            "watch --config {path} --topic beat",
        ):
            done = run_unread(line, path=path)
            assert (done.returncode, done.stderr) == (141, b""), line


def test_messages_that_nobody_reads_stop_nothing(run_unread, path):
    """The device is a message, and so are errors; the exit code stays."""
    line = "match {genome} -d {genome} -k 11 --report reads"
    expected = run_unread(line, "stdin")
    assert b"streamer: matching on" in expected.stderr
    done = run_unread(line, "stderr")
    assert (done.returncode, done.stdout) == (0, expected.stdout)
    for line, code in (("match {bad} -d {genome} -k 11", 1), ("--nonsense", 2)):
        assert run_unread(line, "stderr").returncode == code
    with running(path) as daemon:
        line = "send {genome} --to {to}"
        assert run_unread(line, "stderr", to=daemon.endpoints["ingest"]).returncode == 0


def test_a_full_disk_for_standard_output_is_one_line():
    line = "devices"
    with open("/dev/full", "wb") as full:
        done = forked.run([*PROGRAM, line], stdout=full, text=True)
    errors = [text for text in done.stderr.splitlines() if "error" in text]
    assert done.returncode == 1
    assert errors == ["streamer: error: standard output: No space left on device"]
