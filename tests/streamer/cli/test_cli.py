"""The program as a process: start-up, exit codes, signals, pipes, limits on memory."""

from __future__ import annotations

import gzip
import os
import re
import resource
import signal
import subprocess
import sys
import threading

import pytest

from streamer import __version__
from tests import forked
from tests.data_files import DATA, write_fasta
from tests.waiting import DEADLINE, unread, until
from trie.cpu.machine import MINIMUM

pytestmark = pytest.mark.whole

PROGRAM = [sys.executable, "-m", "streamer"]


def run(*arguments, **options):
    return forked.run([*PROGRAM, *map(str, arguments)], text=True, **options)


def test_help_and_version_import_nothing_heavy():
    code = (
        "import sys; from streamer.cli.app import main; code = main(['--help']);"
        "heavy = {'numba', 'numpy', 'pydantic', 'zmq', 'dnaio'} & set(sys.modules);"
        "sys.exit(f'{code} {heavy}' if code or heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for command in ("match", "run", "validate", "send", "watch", "status", "devices"):
        assert re.search(rf"\b{command}\b", done.stdout)
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, f"streamer {__version__}\n")


@pytest.mark.parametrize("arguments", [["nonsense"], ["--nonsense"], ["match", "--nonsense"]])
def test_usage_errors_are_one_line(arguments, streamer):
    code, out, err = streamer(*arguments)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1


def test_no_command_shows_the_help_and_nothing_else(streamer):
    code, out, err = streamer()
    assert (code, err) == (2, "")
    assert "Usage: streamer" in out


def test_a_closed_pipe_ends_it_quietly(tmp_path):
    """Also amid the rows, where a write without a buffer takes a part of them and says no more."""
    reads = write_fasta(tmp_path / "r.fa", [(f"r{i}", "ACGTTGCATTAC" * 9) for i in range(20_000)])
    process = subprocess.Popen(
        [*PROGRAM, "match", reads, "--seed", "0", "-k", "5", "--report", "reads", "-q"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    with process:
        assert process.stdout.readline().startswith(b"#read\t")
        assert process.stdout.readline().startswith(b"r0\t")
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(DEADLINE) == 141


@pytest.mark.parametrize(
    "sent", [b"", gzip.compress(b">r\nACGTTGC\n")[:-4]], ids=["nothing", "a-cut-gzip"]
)
def test_interrupt_while_waiting_for_input_exits_130(sent, tmp_path):
    """Standard input stays open: a thread that reads it must not hold up or break the end."""
    dictionary = write_fasta(tmp_path / "d.fa", [("t", "ACGTTGCATTAC")])
    process = forked.Forked(
        [*PROGRAM, "match", "-", "-d", dictionary, "-k", "5", "-q"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with process:
        process.stdin.write(sent)
        process.stdin.flush()
        # the header shows that it is about to read
        assert process.stdout.readline().startswith(b"#read\t")
        until(lambda: not unread(process.stdin), "what was sent is read")
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE) == 130
        assert process.stderr.read() == b"streamer: error: interrupted\n"


def test_interrupt_that_a_kernel_ends_with_exits_130(streamer, monkeypatch):
    """Python says of compiled code that it returned with an exception set, once or twice over."""
    from streamer.batch import asm

    def search(*_, **__):
        first = SystemError()
        first.__cause__ = KeyboardInterrupt()
        raise SystemError from first

    monkeypatch.setattr(asm, "find", search)
    code, _, said = streamer("asm", "/dev/null", "--pattern", "ACGT", "-k", 1, "-q")
    assert (code, said) == (130, "streamer: error: interrupted\n")


@pytest.mark.parametrize(
    ("closed", "code", "says"),
    [
        ("<&-", 1, "<stdin>: cannot be read"),
        (">&-", 1, "standard output: cannot write rows"),
        ("2>&-", 0, ""),
    ],
)
def test_closed_standard_streams(closed, code, says, tmp_path):
    dictionary = write_fasta(tmp_path / "d.fa", [("t", "ACGTTGCATTAC")])
    arguments = ["match", "-", "-d", str(dictionary), "-k", "5"]
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", *PROGRAM, *arguments],
        input="", capture_output=True, text=True, timeout=DEADLINE, check=False,
    )  # fmt: skip
    assert done.returncode == code
    errors = [line for line in done.stderr.splitlines() if "error" in line.lower()]
    assert len(errors) == bool(says), done.stderr
    assert says in "".join(errors)
    if code == 0:
        assert done.stdout == "#read\tstart\tend\tevent\twindows\ttarget\n"


@pytest.mark.slow
def test_the_first_run_says_that_it_compiles(tmp_path):
    reads = write_fasta(tmp_path / "r.fa", [("r", "ACGTTGCATTAC")])
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    # this takes longer to compile than goes without a line
    arguments = ["match", reads, "-d", reads, "-k", "5", "--device", "cpu"]
    first = run(*arguments, env=environment)
    again = run(*arguments, env=environment)
    assert first.returncode == again.returncode == 0
    assert first.stdout == again.stdout
    assert first.stderr.count("compiling for this machine, once") == 1
    assert "compiling" not in again.stderr


LINE = "streamer: error: interrupted\n"


WORK = """
import ctypes, os, signal, sys, time
from pathlib import Path

def interrupt():
    os.kill(os.getpid(), signal.SIGINT)

def in_import():
    Path("module.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGINT)")
    sys.path.insert(0, ".")
    try:
        import module
    except BaseException:
        pass

def in_callback():
    ctypes.CFUNCTYPE(None)(interrupt)()
    while True:
        time.sleep(0.01)

def as_another_error():
    try:
        interrupt()
    except KeyboardInterrupt:
        raise NameError("PySeries")

def twice():
    try:
        interrupt()
    finally:
        interrupt()
        print("cleaned up", flush=True)

from streamer.cli import app
app._outcome = lambda *_: globals()[sys.argv[1]]()
sys.exit(app.main([]))
"""


@pytest.mark.parametrize("moment", ["in_import", "in_callback", "as_another_error", "twice"])
def test_an_interrupt_is_not_lost(moment, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", WORK, moment],
        cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (130, LINE)
    assert done.stdout == ("cleaned up\n" if moment == "twice" else "")


STARTED = """
import os, sys
from streamer.__main__ import leave_on_interrupt, run
leave_on_interrupt()  # run's first step: before it an interrupt ends Python as any program
os.write(int(sys.argv.pop(1)), b"!")
run()
"""


@pytest.mark.parametrize("seconds", [0.002, 0.3])
def test_a_command_ends_at_once_from_its_first_steps_on(seconds, tmp_path):
    reader, writer = os.pipe()
    with gzip.open(DATA / "lambda.fa.gz") as file:
        header, *lines = file.read().splitlines()
    one, other = tmp_path / "one.fa", tmp_path / "other.fa"
    one.write_bytes(b"\n".join([header, *lines * 4]))
    other.write_bytes(b"\n".join([header, *lines[::-1] * 4]))
    command = ["lcs", one, other, "-q", "--method", "hirschberg"]  # 38 G cells
    with subprocess.Popen(
        [sys.executable, "-c", STARTED, str(writer), *map(str, command)],
        pass_fds=[writer], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
    ) as process:  # fmt: skip
        os.close(writer)
        assert os.read(reader, 1) == b"!"
        os.close(reader)
        threading.Event().wait(seconds)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=DEADLINE)
    assert (process.returncode, err) == (130, LINE)
    assert "lambda" not in out


GENOME = str(DATA / "lambda.fa.gz")
COMMANDS = {
    "match": ["match", str(DATA / "lambda_sim.fq.gz"), "-d", GENOME, "-k", "21"],
    "primer": ["primer", GENOME, str(DATA / "ont_native_barcodes_24.fa.gz"), "-k", "3"],
}


def run_limited(limit, *arguments, program=("-m", "streamer")):
    return subprocess.run(
        [sys.executable, *program, *arguments],
        capture_output=True, text=True, timeout=DEADLINE, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )  # fmt: skip


def test_too_low_a_limit_is_said_in_one_line():
    done = run_limited(MINIMUM - 1, *COMMANDS["match"])
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("streamer: error: out of memory: the limit of ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["match", pytest.param("primer", marks=pytest.mark.slow)])
def test_the_least_limit_is_enough_for_small_input(command):
    limited, free = (
        run_limited(n, *COMMANDS[command], "-q") for n in (MINIMUM, resource.RLIM_INFINITY)
    )
    assert (limited.returncode, limited.stderr) == (0, "")
    assert limited.stdout == free.stdout


@pytest.mark.slow
def test_input_that_does_not_fit_is_said_in_one_line(tmp_path):
    (tmp_path / "a.fa").write_text(">a\n" + "ACGTTGCA" * 20_000_000)
    done = run_limited(
        MINIMUM, "match", tmp_path / "a.fa", "-d", tmp_path / "a.fa", "-k", "21", "-q"
    )
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
    done = run_limited(resource.RLIM_INFINITY, program=("-c", NO_THREADS))
    assert (done.stdout, done.stderr) == ("[0, 0.0, '']\n", "")
