"""``match`` and ``filter`` of many files: the output of one thread, and no process is left."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.data_files import DATA
from tests.waiting import DEADLINE, until

pytestmark = pytest.mark.whole

TARGETS = DATA / "lambda.fa.gz"


@pytest.fixture(scope="module")
def reads(tmp_path_factory):
    """Twelve files, with more rows than a pipe holds."""
    folder, rng = tmp_path_factory.mktemp("reads"), np.random.default_rng(8)
    genome = "".join(gzip.decompress(TARGETS.read_bytes()).decode().split("\n")[1:])
    paths = []
    for number in range(12):
        starts = rng.integers(0, len(genome) - 150, 2000).tolist()
        records = (
            f"@file_{number}_read_{i}\n{genome[at : at + 150]}\n+\n{'I' * 150}\n"
            for i, at in enumerate(starts)
        )
        path = folder / f"{number:02}.fastq.gz"
        path.write_bytes(gzip.compress("".join(records).encode(), 1))
        paths.append(str(path))
    return paths


def match(reads, *options, threads=6):
    words = ["match", *reads, "-d", TARGETS, "-k", 21, "--threads", threads, *options]
    return [sys.executable, "-m", "streamer", *map(str, words), "--device", "cpu", "--quiet"]


@pytest.fixture
def blocked(reads):
    """A command that waits for its rows to be taken, and its processes."""
    command = match(reads, "--report", "intervals")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as process:
        until(lambda: len(children_of(process)) == 6, "six processes")
        yield process, children_of(process)
        process.kill()


def children_of(process):
    try:
        return Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    except OSError:
        return []


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(
    ("command", "fault", "lines"),
    [
        ("match --report intervals", "cut", 8_000),
        ("match --report coverage", "none", 2),
        ("filter --keep --summary {}", "cut", 4 * 4000),
    ],
)
def test_output_and_faults_are_those_of_one_thread(command, fault, lines, reads, tmp_path):
    files = list(reads)
    if fault == "cut":
        files[7] = str(tmp_path / "cut.fastq.gz")
        Path(files[7]).write_bytes(Path(reads[7]).read_bytes()[:-100])
    found = []
    for threads in (1, 6):
        summary = tmp_path / f"{threads}.json"
        words = [*command.format(summary).split(), *files, "-d", TARGETS, "-k", 21, "-q"]
        done = subprocess.run(
            [sys.executable, "-m", "streamer", *map(str, words), "--threads", str(threads)],
            capture_output=True, timeout=DEADLINE,
        )  # fmt: skip
        told = summary.read_bytes() if summary.exists() else b""
        found.append((done.returncode, done.stdout, done.stderr, told))
    assert found[0] == found[1]
    code, output, said, _ = found[0]
    assert code == (fault == "cut")
    assert said.startswith(f"streamer: error: {files[7]}: record ".encode() * code)
    assert output.count(b"\n") > lines


def test_an_interrupt_is_one_line_and_leaves_no_process(blocked):
    process, children = blocked
    process.send_signal(signal.SIGINT)
    assert process.stderr.read() == b"streamer: error: interrupted\n"
    assert process.wait(DEADLINE) == 130
    assert not any(map(alive, children))


def test_killed_it_leaves_no_process(blocked):
    process, children = blocked
    process.kill()
    process.wait(DEADLINE)
    until(lambda: not any(map(alive, children)), "they end")


def test_a_killed_process_loses_no_row(blocked, reads):
    process, children = blocked
    os.kill(int(children[2]), signal.SIGKILL)
    os.kill(int(children[4]), signal.SIGKILL)
    rows, said = process.communicate(timeout=DEADLINE)
    alone = match(reads, "--report", "intervals", threads=1)
    assert rows == subprocess.run(alone, check=True, capture_output=True, timeout=DEADLINE).stdout
    assert (process.returncode, said) == (0, b"")
