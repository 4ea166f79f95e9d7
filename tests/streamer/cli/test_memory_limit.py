"""Under a limit on memory (``ulimit -v``) a command works or ends with one line and 1."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

from tests.data_files import DATA
from tests.waiting import DEADLINE
from trie.cpu.machine import MINIMUM

pytestmark = pytest.mark.whole

GENOME = str(DATA / "lambda.fa.gz")
COMMANDS = {
    "match": ["match", str(DATA / "lambda_sim.fq.gz"), "-d", GENOME, "-k", "21"],
    "primer": ["primer", GENOME, str(DATA / "ont_native_barcodes_24.fa.gz"), "-k", "3"],
}


def run(limit, *arguments, program=("-m", "streamer")):
    return subprocess.run(
        [sys.executable, *program, *arguments],
        capture_output=True, text=True, timeout=DEADLINE, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_too_low_a_limit_is_said_in_one_line(command):
    for limit in (MINIMUM // 2, MINIMUM - 1):
        done = run(limit, *COMMANDS[command])
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith("streamer: error: out of memory: the limit of ")
        assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("command", COMMANDS)
def test_the_least_limit_is_enough_for_small_input(command):
    limited, free = (run(n, *COMMANDS[command], "-q") for n in (MINIMUM, resource.RLIM_INFINITY))
    assert (limited.returncode, limited.stderr) == (0, "")
    assert limited.stdout == free.stdout


def test_input_that_does_not_fit_is_said_in_one_line(tmp_path):
    (tmp_path / "a.fa").write_text(">a\n" + "ACGTTGCA" * 20_000_000)
    done = run(MINIMUM, "match", tmp_path / "a.fa", "-d", tmp_path / "a.fa", "-k", "21", "-q")
    assert done.returncode == 1
    assert done.stderr.startswith("streamer: error: out of memory")
    assert done.stderr.count("\n") == 1


NO_THREADS = """
import threading
from trie.cpu.threads import run_all

def refuse(*_):
    raise RuntimeError("can't start new thread")

threading.Thread.start = refuse
print(run_all([int, float, str], 3))
"""


def test_where_no_thread_can_be_started_the_caller_does_the_work():
    done = run(resource.RLIM_INFINITY, program=("-c", NO_THREADS))
    assert (done.stdout, done.stderr) == ("[0, 0.0, '']\n", "")
