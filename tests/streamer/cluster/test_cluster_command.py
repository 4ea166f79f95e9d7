"""``--cluster`` on the command line: as a process of its own, and what can go wrong."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from unittest import mock

import pytest

from tests.cluster_kit import TOKEN, needs_ray
from tests.waiting import DEADLINE

pytestmark = [pytest.mark.whole, pytest.mark.filterwarnings("ignore")]


def program(*words, module="streamer", **more):
    return subprocess.run(
        [sys.executable, "-m", module, *words], capture_output=True, text=True, timeout=100,
        check=False, **more,
    )  # fmt: skip


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.fa"
    path.write_text(">t\n" + "ACGTTGCAAC" * 1000 + "\n")
    return str(path)


@pytest.fixture
def environment():
    """Without what other tests have set for Ray."""
    return {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}


@pytest.fixture
def folder():
    """For temporary files, with a name short enough for Ray's sockets."""
    made = Path(tempfile.mkdtemp(prefix="t-", dir="/tmp"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def same_variables():
    """What a command in this process sets for Ray does not last."""
    with mock.patch.dict(os.environ):
        yield


def left_of(folder):
    return [path.name for path in folder.iterdir()]


@needs_ray
def test_a_cluster_of_this_machine(text, folder, environment, streamer):
    environment["TMPDIR"] = str(folder)
    code, alone, _ = streamer("asm", text, "--pattern", "TTGCA", "-k", "1", "-q")
    found = program(
        "asm", text, "--pattern", "TTGCA", "-k", "1", "--cluster", "local", "--threads", "1",
        env=environment,
    )  # fmt: skip
    assert (found.returncode, found.stdout) == (code, alone) == (0, alone)
    assert found.stderr == "streamer: running on a Ray cluster: nodes 1, CPUs 1\n"
    assert left_of(folder) == []


@pytest.mark.parametrize("command", ["asm", "hamming"])
def test_workers_give_lines_only(command, text, streamer):
    words = [command, text, "--pattern", "TTGCA", "-k", "1", "--cluster", "local"]
    said = "streamer: error: --cluster: its rows are lines, --format tsv or jsonl\n"
    assert streamer(*words, "--format", "arrow") == (2, "", said)


@needs_ray
def test_an_interrupt_ends_it_and_leaves_nothing(folder, tmp_path, environment):
    path = tmp_path / "long.fa"
    path.write_text(">t\n" + "ACGTTGCAGC" * 2_000_000 + "\n")
    words = ["asm", str(path), "-k", "9", "--cluster", "local"]
    for count in range(300):
        words += ["--pattern", "ACGTTGCAACGTACGTAGCTA" + "C" * (count % 17) + "G" * (count // 17)]
    environment["TMPDIR"] = str(folder)
    command = subprocess.Popen(
        [sys.executable, "-m", "streamer", *words], stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    assert "running on a Ray cluster" in command.stderr.readline()
    time.sleep(1)
    command.send_signal(signal.SIGINT)
    _, said = command.communicate(timeout=DEADLINE)
    assert (command.returncode, said) == (130, "streamer: error: interrupted\n")
    assert left_of(folder) == []


@needs_ray
def test_a_signal_while_ray_starts_leaves_nothing(text, folder, tmp_path, environment):
    """It comes while a module is imported, as Ray does when it starts."""
    (tmp_path / "signalling.py").write_text(
        f"import os\nos.kill(os.getpid(), {int(signal.SIGTERM)})\n"
    )
    program = (
        "import importlib, sys; from ray._private.node import Node; "
        "Node.start_ray_processes = lambda self: importlib.import_module('signalling'); "
        "from streamer.cli.app import main; "
        f"sys.exit(main(['asm', {text!r}, '--pattern', 'TTGCA', '-k', '1', '--cluster', 'local']))"
    )
    environment |= {"TMPDIR": str(folder), "RAY_AUTH_MODE": "token"}
    environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path), *sys.path])
    found = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert (found.returncode, found.stdout, found.stderr) == (143, "", "")
    assert left_of(folder) == []


def test_without_ray_one_line_says_what_to_install(text, streamer, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    code, _, err = streamer("asm", text, "--pattern", "TTGCA", "-k", "1", "--cluster", "local")
    assert code == 1
    assert err.count("\n") == 1
    assert "pip install '.[cluster]' in a clone" in err


def test_nothing_of_ray_is_imported_without_a_cluster(text):
    code = (
        "import sys; from streamer.cli.app import main; "
        f"main(['asm', {text!r}, '--pattern', 'TTGCA', '-k', '1', '-q', '--device', 'cpu']); "
        "print([name for name in sys.modules if name.split('.')[0] == 'ray' "
        "or name.startswith('streamer.cluster')], file=sys.stderr)"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert found.stderr == "[]\n"


@pytest.mark.usefixtures("same_variables")
def test_nothing_listens_at_the_address(text, streamer):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        code, _, err = streamer("asm", text, "--pattern", "TTGCA", "-k", "1", "--cluster", address)
    assert code == 1
    assert err == (
        f"streamer: error: --cluster {address}: Connection refused; "
        f"start a cluster there with 'ray start --head'\n"
    )


@pytest.mark.usefixtures("same_variables")
@pytest.mark.parametrize("address", ["here", "host:", "host:0", "ray://host:10001", ":6379"])
def test_what_is_no_address_is_a_usage_error(address, text, streamer):
    code, _, err = streamer("asm", text, "--pattern", "TTGCA", "-k", "1", "--cluster", address)
    assert code == 2
    assert err.startswith(f"streamer: error: --cluster {address}: give local, auto, or")
    assert err.count("\n") == 1


@pytest.mark.parametrize("token", ["wrong" * 9, TOKEN])
def test_a_cluster_lets_in_who_has_its_token(token, nodes, text, environment, tmp_path):
    environment |= {"HOME": str(tmp_path), "RAY_AUTH_TOKEN": token}
    found = program(
        "asm", text, "--pattern", "TTGCA", "-k", "1", "--cluster", nodes.address, env=environment
    )
    if token == TOKEN:
        assert found.returncode == 0
        assert found.stderr == "streamer: running on a Ray cluster: nodes 2, CPUs 2\n"
        return
    assert found.returncode == 1
    assert found.stdout == ""
    assert found.stderr.count("\n") == 1
    assert "does not accept this token" in found.stderr


def test_a_growing_dictionary_stays_on_this_machine(text, streamer):
    words = ["match", text, "--seed", "9", "-k", "5", "--device", "cpu"]
    _, alone, _ = streamer(*words)
    code, out, err = streamer(*words, "--cluster", "local")
    assert (code, out) == (0, alone)
    note = "a growing dictionary depends on the order of reads: matching without the cluster"
    assert f"streamer: {note}\n" in err
    assert streamer(*words, "--cluster", "local", "--quiet") == (0, alone, "")


def test_what_is_not_for_a_cluster_is_refused(text, streamer):
    for words in (
        ["match", text, "-d", text, "-k", "5", "--profile"],
        ["lcs", text, text, "--method", "diff"],
    ):
        code, _, err = streamer(*words, "--cluster", "local")
        assert code == 2
        assert "--cluster" in err
