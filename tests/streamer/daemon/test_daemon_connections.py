"""More connections than file descriptors: some are refused, and the others are served."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from streamer.client import Control, Subscriber
from streamer.daemon.connections import Connections
from streamer.daemon.listener import Listener
from streamer.daemon.process import open_descriptors
from streamer.protocol.endpoints import EndpointError
from tests.daemon_kit import (
    DEADLINE,
    Raw,
    Running,
    controlled,
    list_batch,
    process,
    settings,
    wait_for_line,
)  # fmt: skip
from tests.waiting import descriptors_left, until

pytestmark = pytest.mark.whole

LIMITED = (
    "import resource, sys\n"
    "resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))\n"
    "from streamer.cli.app import main\n"
    "sys.exit(main(sys.argv[1:]))\n"
)


@contextmanager
def limited(path, soft, hard, overrides=()):
    """A daemon with a limit of descriptors: (process, endpoints)."""
    given = [word for override in overrides for word in ("--set", override)]
    code = LIMITED.format(soft=soft, hard=hard)
    with process(["run", "--config", path, *given], code) as child:
        endpoints = json.loads(wait_for_line(child, '"listening"'))
        wait_for_line(child, '"ready"')
        yield child, endpoints


def descriptors(child):
    return len(list(Path(f"/proc/{child.pid}/fd").iterdir()))


class Idle(ExitStack):
    """Connections to an endpoint that say nothing."""

    def __init__(self, endpoint: str, count: int) -> None:
        super().__init__()
        self._family, self._address = socket.AF_UNIX, endpoint.removeprefix("ipc://")
        if endpoint.startswith("tcp://"):
            self._family = socket.AF_INET
            self._address = ("127.0.0.1", int(endpoint.rpartition(":")[2]))
        self.connect(count)

    def connect(self, count: int) -> None:
        """Connect so often, at once; as many as find room in the queue come about."""
        for _ in range(count):
            made = self.enter_context(socket.socket(self._family))
            made.setblocking(False)
            # the queue of a Unix-domain socket is short, and a listener that is shut has none
            for _ in range(100):
                if made.connect_ex(self._address) != errno.EAGAIN:
                    break
                os.sched_yield()

    def wait_until_refused(self, child: subprocess.Popen[str]) -> None:
        """Connect again and again until the daemon says that it refuses.

        A busy daemon's queue overflows, and then the kernel forgets a connection of which its
        client believes that it stands.
        """

        def refused() -> bool:
            if not said.done():
                self.connect(64)
            return said.done()

        with ThreadPoolExecutor(1) as pool:
            said = pool.submit(wait_for_line, child, "more are refused")
            until(refused, "connections are refused")
            said.result()


@pytest.fixture(autouse=True)
def many():
    """This process may have more descriptors than the daemon."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(
    ("transport", "flooded"),
    [("ipc", "feed"), pytest.param("tcp", "control", marks=pytest.mark.slow)],
)
def test_idle_connections_leave_the_daemon_at_work(path, transport, flooded):
    names = ("ingest", "feed", "control")
    tcp = [f"{name}.endpoint=tcp://127.0.0.1:*" for name in names] if transport == "tcp" else []
    limit = 1024
    with (
        limited(path, limit // 4, limit, tcp) as (child, endpoints),
        Raw(endpoints["ingest"]) as raw,
        Subscriber(endpoints["feed"], ["read", "status"]) as feed,
        Control(endpoints["control"]) as control,
    ):
        assert feed.wait_for_daemon(DEADLINE)
        raw.open()
        assert control.status()["state"] == "running"
        limits = Path(f"/proc/{child.pid}/limits").read_text()
        (line,) = [line for line in limits.splitlines() if line.startswith("Max open files")]
        assert line.split()[3:5] == [str(limit)] * 2
        for turn in (1, 2):
            with Idle(endpoints[flooded], 2 * limit) as flood:
                if turn == 1:
                    flood.wait_until_refused(child)
                    assert descriptors(child) >= limit // 4
                    if flooded != "control":
                        with Control(endpoints["control"]) as newcomer:
                            assert newcomer.status()["state"] == "running"
                raw.send(*list_batch(turn, [["r", "ACGT" * 9]]))
                raw.accepted(turn, matched=turn)
                assert descriptors(child) < limit
                assert control.status()["totals"]["reads"] == turn
            # whoever comes when they have left is served
            with Raw(endpoints[flooded]) as late:
                if flooded == "control":
                    late.send({"v": 2, "command": "status"})
                    assert late.receive()["ok"]
        with Subscriber(endpoints["feed"], ["status"]) as late_feed:
            assert late_feed.wait_for_daemon(DEADLINE)
        child.send_signal(signal.SIGTERM)
        assert child.wait(DEADLINE) == 0
        assert [m.state for m in feed if hasattr(m, "state")][-1] == "ended"
    left = [name for name in path_names(path) if name.startswith(names)]
    assert not left


def path_names(path):
    return [entry.name for entry in Path(path).parent.iterdir()]


def test_descriptors_that_cannot_be_listed_are_all_in_use(monkeypatch):
    """On a Linux that reports no number."""
    seen = os.stat

    def old(path, **options):
        return SimpleNamespace(st_size=0) if path == "/proc/self/fd" else seen(path, **options)

    monkeypatch.setattr(os, "stat", old)
    assert open_descriptors() == len(os.listdir("/proc/self/fd"))
    with descriptors_left(0):
        assert open_descriptors() == resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def test_connections_that_were_never_seen_to_wait_count(tmp_path):
    listener = Listener(f"ipc://{tmp_path}/listener")
    guard = Connections(lambda: None, [listener], open_descriptors() + 512)
    guard.start()
    with ExitStack() as stack:
        stack.callback(listener.remove)
        stack.callback(guard.join)
        stack.callback(guard.stop)
        for _ in range(512):
            stack.callback(os.close, os.dup(0))
        until(lambda: listener.shut, "the listener is shut")
    assert guard.error is None


def test_too_low_a_limit_is_one_line(path):
    limit = 64
    with process(["run", "--config", path], LIMITED.format(soft=limit, hard=limit)) as child:
        line = wait_for_line(child, "too few file descriptors")
        assert f"too few file descriptors: {limit} are allowed" in line
        assert "ulimit -n" in line
        assert child.wait(DEADLINE) == 1


def test_a_file_where_a_shut_socket_would_be_is_kept(path, tmp_path):
    file = tmp_path / "ingest.full"
    file.write_text("mine")
    said = f"ingest.endpoint: ipc://{file}: a file that is not a socket is in the way"
    with pytest.raises(EndpointError, match=said):
        Running(path)
    assert file.read_text() == "mine"


def test_a_connection_whose_other_side_vanished_is_ended(tmp_path):
    """Without a word of it: the kernel asks whether the other side is still there."""
    path = settings(tmp_path, "k = 5\nmode = 'grow'")
    with controlled(path, ["control.endpoint=tcp://127.0.0.1:*"]) as (daemon, control):
        control.status()
        port = int(daemon.endpoints["control"].rpartition(":")[2])
        kept = [
            (
                one.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE),
                one.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE),
            )
            for one in connections_at(port)
        ]
    assert kept == [(1, 60)]


def connections_at(port):
    """Connections of this process to a port of its own, as their accepting side has them."""
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError), ExitStack() as stack:
            descriptor = os.dup(int(name))
            stack.callback(os.close, descriptor)
            one = socket.socket(fileno=descriptor)
            stack.callback(one.detach)
            # a listening socket has no peer
            if one.family == socket.AF_INET and one.getsockname()[1] == port and one.getpeername():
                yield one


@pytest.mark.parametrize("endpoint", ["ipc://{}/listener", "tcp://127.0.0.1:*", "tcp://[::1]:*"])
def test_a_listener_is_shut_and_opened_again(tmp_path, endpoint):
    made = Listener(endpoint.format(tmp_path))

    def arrives():
        with idle_one(made.endpoint):
            try:
                made._socket.accept()[0].close()
            except BlockingIOError:
                return False
            return True

    until(arrives, "a connection")
    made.close()
    for _ in range(20):
        assert not arrives()
    made.open()
    until(arrives, "a connection")
    made.close()
    made.remove()
    made.open()
    assert not list(tmp_path.iterdir())


@contextmanager
def idle_one(endpoint):
    family = socket.AF_UNIX if endpoint.startswith("ipc") else socket.AF_INET
    address = endpoint.removeprefix("ipc://")
    if endpoint.startswith("tcp"):
        host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
        family = socket.AF_INET6 if host.startswith("[") else family
        address = (host.strip("[]"), int(port))
    with socket.socket(family) as made:
        made.setblocking(False)
        made.connect_ex(address)
        yield
