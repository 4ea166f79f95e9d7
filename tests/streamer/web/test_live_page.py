"""The live page of a real daemon over HTTP: it agrees with the daemon, is guarded, and heals."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from urllib.parse import quote

import pytest

from streamer.client import Control, Producer
from streamer.daemon import config
from streamer.daemon.service import Service
from streamer.errors import ConfigError
from streamer.protocol.endpoints import EndpointError
from tests import forked
from tests.daemon_kit import GENOME, reads_of, running, send_reads, write_fasta
from tests.streamer.web.conftest import settings_in
from tests.waiting import DEADLINE, until

pytestmark = [pytest.mark.whole, pytest.mark.usefixtures("forked_children")]

uvicorn = pytest.importorskip("uvicorn", reason="the live page needs starlette and uvicorn")
PlainTextResponse = pytest.importorskip("starlette.responses").PlainTextResponse

TOKEN = "0123456789-abcdef"
ON = ["web.endpoint=127.0.0.1:0"]
COUNTED = [*ON, "answers.targets=true", "answers.coverage=true", "panel.enough_reads=1"]


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The address of a page that tests only open."""
    folder = tmp_path_factory.mktemp("page")
    with running(settings_in(folder), [*COUNTED, 'web.hosts=["lab.example"]']) as daemon:
        yield daemon.endpoints["web"]


def ask(endpoint, path="/", method="GET", body=None, **headers):
    """Status, headers and body of an answer."""
    connection = http.client.HTTPConnection(endpoint, timeout=DEADLINE)
    try:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, names)
        answer = connection.getresponse()
        found = {name.lower(): value for name, value in answer.getheaders()}
        return answer.status, found, answer.read().decode()
    finally:
        connection.close()


@contextmanager
def events(endpoint, **headers):
    """An iterator over (name, fields) of the events."""
    connection = http.client.HTTPConnection(endpoint, timeout=DEADLINE)
    connection.request("GET", "/events", headers=headers)
    answer = connection.getresponse()
    assert answer.getheader("content-type").startswith("text/event-stream")

    def read():
        while (head := answer.readline()) != b"":
            data, _ = answer.readline(), answer.readline()
            name = head.decode().removeprefix("event: ").strip()
            yield name, json.loads(data.decode().removeprefix("data: "))

    try:
        yield read()
    finally:
        answer.close()
        connection.close()


def everything(endpoint):
    """All that a page that opens now shows."""
    with events(endpoint) as stream:
        name, fields = next(stream)
    assert name == "everything"
    return fields


def shows(endpoint, reads, *, counted=False):
    """All that the page shows once it shows so many reads; counted: by target, too."""
    found = {}

    def there():
        found.update(everything(endpoint))
        rows = found["rows"]
        shown = sum(row[1] for row in rows["targets"]) + (rows["unassigned"] or [0, 0])[1]
        total = found["status"].get("totals", {}).get("reads")
        return total == reads == sum(found["lengths"]["reads"]) and shown in (
            {reads} if counted else {reads, 0}
        )

    until(there, f"{reads} reads on the page")
    return found


def test_it_agrees_with_the_daemon_also_when_its_process_has_died(path, evil):
    with running(path, COUNTED) as daemon:
        endpoint = daemon.endpoints["web"]
        until(lambda: everything(endpoint)["status"], "the page hears the daemon")
        daemon.wait_for_subscriptions("read", "targets", "barcodes", "beat", "status", "novelty")
        with events(endpoint) as stream:
            assert next(stream)[0] == "everything"
            send_reads(daemon)
            lengths, point = 0, None
            while lengths < 120 or point is None or point[1] < 120:
                name, fields = next(stream)
                assert name == "tick"
                lengths = sum(fields.get("lengths", {}).get("reads", [lengths]))
                point = fields.get("point", point)
        found = shows(endpoint, 120, counted=True)
        with Control(daemon.endpoints["control"]) as control:
            status, (_, rows) = control.status(), control.targets()
            coverage = control.coverage(evil, 7)
        assert found["status"]["totals"] | {"recent_bases_per_second": 0} == status["totals"] | {
            "recent_bases_per_second": 0
        }
        assert sorted(found["rows"]["targets"]) == sorted(rows[:-1])
        assert found["rows"]["unassigned"] == rows[-1]
        [sample] = found["rows"]["samples"]
        assert (sample[0], sample[6]) == (None, 2)
        assert found["producers"][0][:4] == ["sender", 3, 120, status["totals"]["bases"]]
        assert found["history"][-1][1:3] == [120, status["totals"]["bases"]]
        assert any(point[5] for point in found["history"])
        code, _, body = ask(endpoint, f"/coverage?target={quote(evil)}&bins=7")
        assert (code, json.loads(body)["rows"]) == (200, [list(row) for row in coverage])
        _, _, _, _, kmers, seen, *_ = rows[1]
        assert (kmers, seen) != (0, 0)
        assert sum(row.matches for row in coverage) >= rows[1][3]
        assert coverage[0].start == 0
        assert coverage[-1].end == 2000
        # Python converts no numbers of so many digits
        endless = f"target=one&bins={'9' * 5000}"
        for query, want in (
            ("target=none", 404), ("target=one&bins=0", 400), ("", 404), (endless, 400),
        ):  # fmt: skip
            assert ask(endpoint, f"/coverage?{query}")[0] == want
        web = daemon.service._web
        before = web.process
        os.kill(before, signal.SIGKILL)
        until(lambda: web.process not in (None, before), "another process")

        def heard():
            found = everything(endpoint)
            reads = found["status"].get("totals", {}).get("reads")
            return reads == 120 and found["rows"]["targets"]

        until(heard, "the new process has asked for all rows")


def test_coverage_is_that_of_one_match(path, evil, tmp_path, streamer):
    reads = reads_of(GENOME, random.Random(5), 200)
    file = write_fasta(tmp_path / "reads.fa", [read for read in reads if read[1]])
    with running(path, ["answers.targets=true", "answers.coverage=true"]) as daemon:
        with Producer(daemon.endpoints["ingest"]) as producer:
            producer.send(reads)
            producer.flush(matched=True)
        with Control(daemon.endpoints["control"]) as control:
            found = [[name, *row] for name in ("one", evil) for row in control.coverage(name, 9)]
    arguments = ["match", file, "-d", tmp_path / "t.fa", "-k", "13", "--report", "coverage"]
    code, out, _ = streamer(*arguments, "--bins", "9", "-q")
    assert code == 0
    assert [[str(value) for value in row] for row in found] == [
        line.split("\t") for line in out.splitlines()[1:]
    ]


def test_headers_and_hosts(page):
    code, headers, body = ask(page)
    assert code == 200
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert "http://" not in body
    assert "https://" not in body
    for host in ("localhost:1", "127.0.0.1", "[::1]:80", "LAB.example"):
        assert ask(page, Host=host)[0] == 200, host
    for host in ("evil.example", "127.0.0.1.evil.example", "192.0.2.7", "", "localhost.evil:1"):
        assert ask(page, Host=host)[0] in (400, 421), host
    assert ask(page, "/events", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="cors")[0] == 403
    assert ask(page, "/", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate")[0] == 200
    for outside in ("/static/../guard.py", "/static/%2e%2e/guard.py", "/static//etc/passwd"):
        assert ask(page, outside)[0] == 404
    assert ask(page, method="POST")[0] == 405


def test_token(path, tmp_path):
    file = tmp_path / "token"
    file.write_text(TOKEN + "\n")
    file.chmod(0o600)
    with running(path, ["web.endpoint=0.0.0.0:0", f"web.token_file={file}"]) as daemon:
        port = daemon.endpoints["web"].rpartition(":")[2]
        endpoint = f"127.0.0.1:{port}"
        for secret in ("/", "/events", "/coverage?target=one", "/static/page.js", "/?token=wrong"):
            code, headers, body = ask(endpoint, secret)
            assert (code, headers["www-authenticate"]) == (401, "Bearer"), secret
            assert "content-security-policy" in headers
            assert 'name="token"' in body
        assert ask(endpoint, "/static/page.css")[0] == 200
        assert ask(endpoint, Authorization=f"Bearer {TOKEN}")[0] == 200
        assert ask(endpoint, Authorization=f"Bearer {TOKEN}x")[0] == 401
        answers = [
            ask(endpoint, f"/?token={TOKEN}"),
            ask(endpoint, "/login", "POST", f"token={TOKEN}"),
        ]
        for code, headers, _ in answers:
            assert (code, headers["location"]) == (303, "/")
            cookie = headers["set-cookie"]
            assert TOKEN not in cookie
            assert "httponly" in cookie.lower()
            assert "samesite=lax" in cookie.lower()
            assert ask(endpoint, Cookie=cookie.partition(";")[0])[0] == 200
        assert ask(endpoint, "/login", "POST", "token=" + 5000 * "x")[0] == 401
        assert ask(endpoint, Cookie=f"streamer-{port}=0")[0] == 401
        # of any address, but not of a name that may be anybody's
        assert ask(endpoint, Host="192.0.2.7", Authorization=f"Bearer {TOKEN}")[0] == 200
        assert ask(endpoint, Host="evil.example", Authorization=f"Bearer {TOKEN}")[0] == 421
        # nobody reads it from the list of processes
        child = daemon.service._web.process
        assert TOKEN not in " ".join(forked.COMMANDS[child])


def test_a_token_that_others_can_read_is_refused(path, tmp_path):
    file = tmp_path / "token"
    for text, mode, problem in (
        (TOKEN, 0o644, "can be read by others: chmod 600"),
        ("", 0o600, "is empty"),
        ("short", 0o600, "has 5 characters"),
    ):
        file.write_text(text)
        file.chmod(mode)
        with pytest.raises(ConfigError, match=problem):
            config.load(path, [*ON, f"web.token_file={file}"])


def test_missing_packages_are_said_at_the_start(path, monkeypatch):
    found = __import__("importlib.util").util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name == "uvicorn" else found(name)
    )
    with pytest.raises(ConfigError, match=r"needs uvicorn: pip install '\.\[web\]'"):
        config.load(path, ON)


def test_an_address_in_use_ends_the_start(path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"web.endpoint=127.0.0.1:{other.getsockname()[1]}"
        service = Service(config.load(path, [address]))
        with pytest.raises(EndpointError, match=r"web\.endpoint"):
            service.start()


def test_it_goes_on_over_a_restart_of_the_daemon(path, monkeypatch):
    # as users start it
    monkeypatch.setattr("streamer.daemon.child.subprocess", subprocess)
    with running(path, COUNTED) as daemon:
        endpoint = daemon.endpoints["web"]
        with events(endpoint) as stream:
            # the process has answered, so it is known
            next(stream)
            process = daemon.service._web.process
            daemon.service.drain("the test says so")
            # the stream ends, and nothing is left behind
            for _ in stream:
                pass
        daemon.join()
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
    with running(path, [*COUNTED, f"web.endpoint={endpoint}"]) as daemon:
        send_reads(daemon)
        until(
            lambda: everything(endpoint)["status"].get("totals", {}).get("reads") == 120,
            "the page of the next daemon",
        )


def test_a_page_that_does_not_read_holds_up_nobody(page):
    with socket.create_connection(at(page)) as idle:
        idle.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        idle.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with events(page) as stream:
            for _ in range(8):
                next(stream)


def at(endpoint):
    host, _, port = endpoint.rpartition(":")
    return host, int(port)


def closed(connection):
    """Whether the other end has closed a connection on which nothing came."""
    try:
        return connection.recv(1, socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def test_half_sent_requests_keep_nobody_out(page):
    """The oldest make room; a connection that has its answer, or an open page, stays."""
    with ExitStack() as stack:
        stream = stack.enter_context(events(page))
        next(stream)
        half = [stack.enter_context(socket.create_connection(at(page))) for _ in range(600)]
        for number, connection in enumerate(half):
            part = (b"", b"GET / HT", b"POST /login HTTP/1.1\r\nHost: localhost\r\n")[number % 3]
            with suppress(OSError):
                connection.sendall(part)
        assert ask(page)[0] == 200
        until(lambda: sum(map(closed, half)) >= 400, "the oldest are closed")
        assert ask(page)[0] == 200
        next(stream)


def test_one_address_takes_a_share_of_the_pages(page):
    """Requests that the guard refuses do not count."""
    request = b"GET /events HTTP/1.1\r\nHost: %s\r\n\r\n"
    with ExitStack() as stack:
        for host, count in ((b"evil.example", 150), (b"localhost", 100)):
            for _ in range(count):
                opened = stack.enter_context(socket.create_connection(at(page), DEADLINE))
                opened.sendall(request % host)
                assert opened.recv(12) == (
                    b"HTTP/1.1 200" if host == b"localhost" else b"HTTP/1.1 421"
                )
        assert ask(page)[0] == 503
        stack.close()
        until(lambda: ask(page)[0] == 200, "room again")


async def until_closed(reader):
    """Read what comes until the other end closes."""
    received = b""
    with suppress(ConnectionResetError):
        while part := await reader.read(4096):
            received += part
    return received


def test_a_request_gets_a_limited_time(monkeypatch):
    """Sent in small pieces, too; and the next one on a connection that had an answer."""
    monkeypatch.setattr("streamer.web.routes.REQUEST_SECONDS", 0.2)
    server = import_module("streamer.web.routes").RequestTimed
    config = uvicorn.Config(PlainTextResponse("here"), lifespan="off", log_config=None)
    whole = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"

    async def exchange(text):
        loop = asyncio.get_running_loop()
        state = uvicorn.server.ServerState()
        listening = await loop.create_server(lambda: server(config, state, {}), "127.0.0.1", 0)
        async with listening:
            reader, writer = await asyncio.open_connection(*listening.sockets[0].getsockname())
            receiving = asyncio.create_task(until_closed(reader))
            for byte in text:
                writer.write(bytes([byte]))
                await asyncio.sleep(0)
            received = await asyncio.wait_for(receiving, DEADLINE)
            writer.close()
            with suppress(ConnectionResetError):
                await writer.wait_closed()
            return received

    assert asyncio.run(exchange(b"")) == b""
    assert asyncio.run(exchange(whole[:-1])) == b""
    assert asyncio.run(exchange(whole + whole[:-1])).count(b"here") == 1
    assert asyncio.run(exchange(whole + whole)).count(b"here") == 2


pytest.importorskip("uvicorn", reason="the live page needs starlette and uvicorn")

IMPORTING = "import time; time.sleep(600)"


def test_the_process_ends_while_a_request_to_control_gets_no_answer(path, capfd):
    with running(path, ON) as daemon:
        endpoint = daemon.endpoints["web"]
        until(lambda: everything(endpoint)["status"], "the page hears the daemon")
        # from now on control is deaf; the page asks it once a second
        daemon.service._control.stop()
        daemon.service._control.join(DEADLINE)
        until(lambda: everything(endpoint)["problem"], "the page waits for control")
    assert "did not end" not in capfd.readouterr().err


def test_a_fault_of_the_follower_is_raised(monkeypatch):
    process = import_module("streamer.web.__main__")

    async def fails(follower):
        raise RuntimeError("a fault")

    monkeypatch.setattr(process.Follower, "run", fails)
    monkeypatch.setattr(process, "_end_of_input", lambda: asyncio.sleep(DEADLINE))
    listener = socket.create_server(("127.0.0.1", 0))
    task = process.WebTask(
        endpoint="127.0.0.1:1", listener=listener.detach(), feed="", control="", token="",
        hosts=[], level="warning", format="json",
    )  # fmt: skip
    with pytest.raises(RuntimeError, match="a fault"):
        asyncio.run(process.serve(task))


def test_a_process_that_has_not_begun_is_ended_at_once(path, monkeypatch, capfd):
    """It does not look at its standard input yet."""
    started = []

    class Importing(subprocess.Popen):
        def __init__(self, line, **how):
            started.append(self)
            super().__init__([sys.executable, "-c", IMPORTING], **how)

    monkeypatch.setattr("streamer.daemon.child.subprocess.Popen", Importing)
    monkeypatch.setattr("streamer.daemon.child.WebWorker._end_seconds", DEADLINE)
    with running(path, ["web.endpoint=127.0.0.1:0"]) as daemon:
        until(lambda: daemon.service._web.process, "the process")
    (child,) = started
    assert child.returncode
    assert "did not end" not in capfd.readouterr().err
