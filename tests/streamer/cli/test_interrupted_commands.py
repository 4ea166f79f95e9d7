"""Ctrl-C on the command line: 130 and one line, whatever it comes in the midst of."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
import threading

import pytest

from tests.data_files import DATA
from tests.waiting import DEADLINE

LINE = "streamer: error: interrupted\n"

pytestmark = pytest.mark.whole

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

class Object:
    def __del__(self):
        interrupt()

def in_finalizer():
    Object()
    while True:
        time.sleep(0.01)

def as_another_error():
    try:
        interrupt()
    except KeyboardInterrupt:
        raise NameError("PySeries")

def dropped():
    try:
        interrupt()
    except KeyboardInterrupt:
        return ([], 0)

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


@pytest.mark.parametrize(
    "moment", ["in_import", "in_callback", "in_finalizer", "as_another_error", "dropped", "twice"]
)
def test_an_interrupt_is_not_lost(moment, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", WORK, moment],
        cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (130, LINE)
    assert done.stdout == ("cleaned up\n" if moment == "twice" else "")


STARTED = """
import os, sys
from streamer.__main__ import run
os.write(int(sys.argv.pop(1)), b"!")
run()
"""


@pytest.mark.parametrize("seconds", [0.002, 0.1, 0.3, 0.7])
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
