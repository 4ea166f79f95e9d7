"""Control beside a daemon that takes long, or whose jobs change while they are listed."""

from __future__ import annotations

import threading
from contextlib import contextmanager

import msgpack
import pytest
import zmq

from streamer.client import Control, DaemonSilentError
from streamer.client import control as control_room
from tests.daemon_kit import sealed
from tests.waiting import DEADLINE

PAGE = 3


@contextmanager
def answering(endpoint, answer):
    """A daemon whose replies are what ``answer`` makes of a request; None: it does not reply."""
    stop = threading.Event()
    context = zmq.Context()
    socket = context.socket(zmq.ROUTER)
    socket.bind(endpoint)

    def work():
        while not stop.is_set():
            if not socket.poll(20):
                continue
            route, head, _ = socket.recv_multipart()
            for request, fields in answer(msgpack.unpackb(head)):
                reply = {"v": 2, "type": "reply", "id": request["id"], "ok": True} | fields
                socket.send_multipart([route, *sealed(msgpack.packb(reply))])

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(DEADLINE)
        socket.close(linger=0)
        context.term()


def test_a_job_that_takes_long_to_store_is_waited_for_and_submitted_once(tmp_path, monkeypatch):
    """As long as the daemon says that it is there."""
    monkeypatch.setattr(control_room, "_ASK_SECONDS", 0.05)
    submitted, looks = [], []

    def answer(request):
        if request["command"] == "submit":
            submitted.append(request)
            return []
        looks.append(request)
        said = [(request, {"status": {}})]
        if len(looks) == 40:
            said.append((submitted[0], {"job": {"id": "0000000a"}}))
        return said

    endpoint = f"ipc://{tmp_path}/control"
    with answering(endpoint, answer), Control(endpoint, answer_seconds=1) as control:
        assert control.submit(["lcs", "a.fa", "b.fa"])["id"] == "0000000a"
    assert len(submitted) == 1
    with (
        answering(endpoint, lambda _: []),
        Control(endpoint, answer_seconds=0.1) as control,
        pytest.raises(DaemonSilentError),
    ):
        control.submit(["lcs", "a.fa", "b.fa"])


@pytest.mark.parametrize("gone", range(8))
@pytest.mark.parametrize("retried", [True, False])
def test_no_job_is_missing_where_others_move_between_two_pages(tmp_path, gone, retried):
    """One is forgotten, or runs again and so comes behind all, after the first page."""
    jobs = [{"id": f"{number:08x}"} for number in range(8)]
    moved = []

    def answer(request):
        first = request["first"]
        page = jobs[first : first + PAGE]
        following = first + len(page)
        fields = {"jobs": page, "next": following if following < len(jobs) else None}
        if not moved:
            moved.append(jobs.pop(gone))
            jobs.extend(moved if retried else [])
        return [(request, fields)]

    endpoint = f"ipc://{tmp_path}/control"
    with answering(endpoint, answer), Control(endpoint, answer_seconds=DEADLINE) as control:
        found = control.jobs()
    ids = [job["id"] for job in found]
    assert len({*ids}) == len(ids)
    assert {job["id"] for job in jobs} - {*ids} == set()
