"""A job runs once, whatever becomes of the reply to its submission or to ``retry``."""

from __future__ import annotations

import os
from contextlib import contextmanager

import msgpack
import pytest
import zmq

from streamer.client import Control, RefusedError
from tests.daemon_kit import DEADLINE, running
from tests.jobs_kit import job_folder, wait_for_job
from tests.waiting import beside

pytestmark = pytest.mark.whole

LINE = ["lcs", "one.fa", "other.fa"]


@pytest.fixture
def path(tmp_path, monkeypatch):
    made = job_folder(tmp_path)
    monkeypatch.chdir(tmp_path / "data")
    return made


@contextmanager
def between(front, back, lost):
    """Passes messages on; what comes back goes to its client unless ``lost`` says so of it."""
    context = zmq.Context()
    clients, daemon = context.socket(zmq.ROUTER), context.socket(zmq.DEALER)
    clients.bind(front)
    daemon.connect(back)

    def work(stop):
        route = b""
        while not stop.is_set():
            for socket in zmq.select([clients, daemon], [], [], 0.02)[0]:
                frames = socket.recv_multipart()
                if socket is clients:
                    route, *frames = frames
                    daemon.send_multipart(frames)
                elif not lost(msgpack.unpackb(frames[0])):
                    clients.send_multipart([route, *frames])

    try:
        with beside(work):
            yield
    finally:
        context.destroy(linger=0)


def test_what_got_no_reply_is_done_once(path, tmp_path):
    """A submission and a retry, of which the first reply is lost."""
    through = f"ipc://{tmp_path}/through"
    attempts = []

    def lost(reply):
        if "job" not in reply:
            return False
        attempts.append(reply["job"]["attempt"])
        return attempts.count(attempts[-1]) == 1

    open("empty.fa", "w").close()
    with (
        running(path) as daemon,
        Control(daemon.endpoints["control"], answer_seconds=DEADLINE) as direct,
        between(through, daemon.endpoints["control"], lost),
        Control(through, answer_seconds=1) as control,
    ):
        job = control.submit(["lcs", "one.fa", "empty.fa"], os.getcwd())["id"]
        assert [job] == [known["id"] for known in direct.jobs()]
        assert attempts.count(1) > 1
        wait_for_job(direct, job, "failed")
        assert control.retry(job)["attempt"] == 2
        assert wait_for_job(direct, job, "failed")["attempt"] == 2
        assert attempts.count(2) > 1
        with pytest.raises(RefusedError, match="field 'attempt'"):
            direct.request("retry", job=job, attempt="3")
        check_keys(direct)


def check_keys(control):
    """The same key names the same job, whatever the line; without one each is new."""
    fields = {"line": LINE, "folder": os.getcwd()}

    def submit(**more):
        return control.request("submit", **(fields | more))["job"]["id"]

    first = submit(key="a")
    assert submit(key="a", line=["lcs", "gone.fa", "gone.fa"]) == first
    others = [submit(key="b"), submit(key="x" * 64), submit(), submit(), submit(key="")]
    assert len({first, *others}) == 6
    for key in ("x" * 65, 1, b"a"):
        with pytest.raises(RefusedError, match="'key' must be a text of at most 64 bytes"):
            submit(key=key)
    assert control.status()["job_keys"]
