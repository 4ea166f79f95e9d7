"""A daemon that is ended while it reads its journal or a dictionary waits for neither."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import tempfile
import threading
from importlib.util import find_spec
from pathlib import Path

import pytest

from streamer.client import Control, RefusedError
from streamer.daemon import reload
from tests.daemon_kit import DEADLINE, controlled, process, running, wait_for_line, write_fasta
from tests.reload_kit import configured, sources_of
from tests.waiting import until

pytestmark = pytest.mark.whole

HELD = (
    "import sys, threading\n"
    "from streamer.daemon import {module}\n"
    "def hold(*_, **__):\n"
    "    print('held', file=sys.stderr)\n"
    "    while True:\n"
    "        threading.Event().wait(0.01)\n"
    "{module}.{function} = hold\n"
    "from streamer.cli.app import main\n"
    "sys.exit(main(sys.argv[1:]))\n"
)


@pytest.fixture
def path(tmp_path):
    write_fasta(tmp_path / "ref.fa", sources_of(random.Random(3)))
    return configured(tmp_path, 'mode = "grow"')


@pytest.mark.parametrize(
    ("module", "function", "number"),
    [
        ("engine", "load_dictionary", signal.SIGTERM),
        pytest.param("service", "restored_of", signal.SIGINT, marks=pytest.mark.slow),
    ],
)
def test_an_end_before_it_is_ready(path, tmp_path, module, function, number):
    with process(["run", "-c", path], HELD.format(module=module, function=function)) as child:
        wait_for_line(child, "held")
        child.send_signal(number)
        _, rest = child.communicate(timeout=DEADLINE)
        assert child.returncode == 0
    assert "did not end" not in rest
    if module == "engine":
        assert '"event": "ended"' in rest
    assert not list(tmp_path.glob("control*"))
    # the journal is whole, and nobody's
    with running(path):
        pass


@pytest.fixture
def folder(monkeypatch):
    """For the files of a daemon's own cluster."""
    if find_spec("ray") is None:
        pytest.skip("Ray is not installed: pip install '.[cluster]' in a clone")
    for name in [name for name in os.environ if name.startswith("RAY_")]:
        monkeypatch.delenv(name)
    # short enough for Ray's sockets
    with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as made:
        monkeypatch.setenv("TMPDIR", made)
        yield made


def of_ray(folder):
    """The processes of a cluster: the path of the program and the process id."""
    found = {}
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            line = file.read_bytes()
            if folder.encode() in line:
                found[line.split(b"\0")[0].decode()] = int(file.parent.name)
    return found


@pytest.mark.slow
def test_an_end_before_a_daemon_of_its_own_cluster_is_ready(path, folder):
    """Neither the cluster nor its files are left, nor is it waited for."""
    code = HELD.format(module="engine", function="load_dictionary")
    with process(["run", "-c", path, "--set", "cluster.address=local"], code) as child:
        wait_for_line(child, "held")
        assert os.listdir(folder)
        assert of_ray(folder)
        child.terminate()
        _, rest = child.communicate(timeout=DEADLINE)
        assert child.returncode == 0
    assert "did not end" not in rest
    assert '"event": "ended"' in rest
    assert not os.listdir(folder)
    until(lambda: not of_ray(folder), "Ray has ended")


@pytest.mark.slow
def test_if_ray_ends_so_does_the_daemon(path, tmp_path, folder):
    """In order, before Ray kills it."""
    with process(["run", "-c", path, "--set", "cluster.address=local"]) as child:
        wait_for_line(child, '"ready"')
        raylet = next(pid for name, pid in of_ray(folder).items() if name.endswith("/raylet"))
        os.kill(raylet, signal.SIGKILL)
        _, rest = child.communicate(timeout=DEADLINE)
        assert child.returncode == 1
    assert "Ray has ended on this machine: start it again, then the daemon" in rest
    assert not os.listdir(folder)
    assert not list(tmp_path.glob("control*"))


def test_a_reply_that_comes_last_is_sent(path, monkeypatch):
    """The end is asked for before the thread of the control socket has seen the reply."""
    reading = threading.Event()
    monkeypatch.setattr(reload, "load_dictionary", lambda *_, **__: stopping.wait(DEADLINE))

    class Slow(dict):
        def clear(self):
            """Called at the end of each round."""
            if reading.is_set():
                stopping.wait(DEADLINE)

    def ask():
        with pytest.raises(RefusedError, match=r"\(draining\): the daemon ends: the dictionary"):
            control.reload()
        refused.append(True)

    refused = []
    with controlled(path) as (daemon, control):
        worker = daemon.service._control
        stopping, worker._replies = worker.stopping, Slow()
        client = threading.Thread(target=ask)
        begin = worker._reload
        worker._reload = lambda *given: (begin(*given), reading.set())
        client.start()
        assert reading.wait(DEADLINE)
        daemon.service.drain("the test ends it")
        client.join(DEADLINE)
    assert refused


def test_a_reload_whose_sources_are_being_read_is_given_up(path, tmp_path):
    refused = []

    def ask(control):
        with pytest.raises(RefusedError, match=r"\(draining\): the daemon ends: the dictionary"):
            control.reload()
        refused.append(control)

    code = HELD.format(module="reload", function="load_dictionary")
    with (
        process(["run", "-c", path], code) as child,
        Control(f"ipc://{tmp_path}/control", answer_seconds=DEADLINE) as control,
    ):
        wait_for_line(child, '"ready"')
        client = threading.Thread(target=ask, args=(control,))
        client.start()
        wait_for_line(child, "held")
        child.send_signal(signal.SIGTERM)
        _, rest = child.communicate(timeout=DEADLINE)
        client.join(DEADLINE)
        assert child.returncode == 0
    assert refused
    assert '"event": "ended"' in rest
    assert "did not end" not in rest
