"""Control beside a daemon that takes long, or whose jobs change while they are listed."""

from __future__ import annotations

from contextlib import contextmanager

import msgpack
import pytest
import zmq

from streamer.client import Control, DaemonSilentError, RefusedError
from streamer.client import control as control_room
from streamer.errors import UsageError
from tests.daemon_kit import sealed
from tests.waiting import DEADLINE, beside

PAGE = 3


@pytest.fixture
def client(tmp_path, monkeypatch):
    """Makes a Control whose daemon's replies are those of ``answer``; it asks again soon."""
    monkeypatch.setattr(control_room, "_ASK_SECONDS", 0.05)
    endpoint = f"ipc://{tmp_path}/control"

    @contextmanager
    def made(answer, answer_seconds=DEADLINE):
        with (
            answering(endpoint, answer),
            Control(endpoint, answer_seconds=answer_seconds) as control,
        ):
            yield control

    return made


@contextmanager
def answering(endpoint, answer):
    """A daemon whose replies are what ``answer`` makes of a request: (request, fields) each."""
    context = zmq.Context()
    socket = context.socket(zmq.ROUTER)
    socket.bind(endpoint)

    def work(stop):
        while not stop.is_set():
            if not socket.poll(20):
                continue
            route, head, _ = socket.recv_multipart()
            for request, fields in answer(msgpack.unpackb(head)):
                reply = {"v": 2, "type": "reply", "id": request["id"], "ok": True} | fields
                more = [frame] if (frame := reply.pop("frame", None)) else []
                if reply["id"] is None:
                    del reply["id"]
                socket.send_multipart([route, *sealed(msgpack.packb(reply), *more)])

    try:
        with beside(work):
            yield
    finally:
        socket.close(linger=0)
        context.term()


def test_a_job_that_takes_long_to_store_is_waited_for_and_submitted_once(client, monkeypatch):
    """As long as the daemon says that it is there."""
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

    with client(answer) as control:
        assert control.submit(["lcs", "a.fa", "b.fa"])["id"] == "0000000a"
    assert len(submitted) == 1
    monkeypatch.setattr(control_room, "_PATIENCE_SECONDS", 0.2)
    with (
        client(lambda _: [], 0.1) as control,
        pytest.raises(DaemonSilentError, match=r"no answer within 0\.2 s"),
    ):
        control.submit(["lcs", "a.fa", "b.fa"])


def test_a_job_is_asked_for_again_by_its_key(client):
    """Of a daemon that is silent for longer than an answer takes, then there."""
    submitted, looks = [], []

    def answer(request):
        if request["command"] == "submit":
            submitted.append(request)
            if len(submitted) == 2:
                # the first one waits yet
                return [(request, {"ok": False, "reason": "busy", "message": "too many"})]
            return [(request, {"job": {"id": "0000000a"}})] if len(submitted) == 3 else []
        looks.append(request)
        if 1 < len(looks) < 8:
            return []
        return [(request, {"status": {"stream": "s", "epoch": 1}})]

    with client(answer, 0.2) as control:
        assert control.submit(["lcs", "a.fa", "b.fa"])["id"] == "0000000a"
    first, second, third = ({**request, "id": 0} for request in submitted)
    assert first == second == third
    assert len(first["key"]) == 16
    with client(answer, 0.2) as control:
        submitted.clear()
        control.submit(["lcs", "a.fa", "b.fa"])
    assert submitted[0]["key"] != first["key"]


def test_a_restarted_daemon_that_is_too_busy_for_a_job_refuses_it(client):
    """Only the old daemon had the first request, so nothing is left to wait for."""
    submitted, looks = [], []

    def answer(request):
        if request["command"] == "submit":
            submitted.append(request)
            refusal = {"ok": False, "reason": "busy", "message": "1000 jobs wait or run"}
            # a client that goes on waiting has its job at last
            outcome = refusal if len(submitted) < 4 else {"job": {"id": "0000000a"}}
            return [(request, outcome)] if len(submitted) > 1 else []
        looks.append(request)
        epoch = 1 + (len(looks) > 1)
        return [(request, {"status": {"stream": "s", "epoch": epoch}})]

    with client(answer, 0.2) as control, pytest.raises(RefusedError, match="1000 jobs wait"):
        control.submit(["lcs", "a.fa", "b.fa"])


def test_a_restarted_daemon_that_starts_is_asked_again_for_a_reload(client):
    asked, looks = [], []

    def answer(request):
        if request["command"] == "reload":
            asked.append(request)
            starting = {"ok": False, "reason": "busy", "message": "still being read"}
            return [(request, {} if len(asked) == 3 else starting)] if len(asked) > 1 else []
        looks.append(request)
        return [(request, {"status": {"stream": "s", "epoch": 1 + (len(looks) > 1)}})]

    with client(answer, 0.2) as control:
        control.reload()
    assert len(asked) == 3


@pytest.mark.whole
@pytest.mark.parametrize(
    ("command", "more"),
    [
        ("job", {}),
        ("jobs", {"jobs": [{"id": "0000000a"}], "next": None}),
        ("cancel", {}),
        ("retry", {}),
        ("result", {"path": "/a", "bytes": 1}),
        ("reload", {}),
    ],
)
def test_a_request_that_is_lost_is_sent_again(client, command, more):
    """The daemon is there all the time, and knows nothing of it."""
    asked, looks = [], []

    def answer(request):
        if request["command"] == "status":
            looks.append(request)
            # a client that only waits is told so at last
            return [(request, {"status": {"stream": "s", "epoch": 1 + (len(looks) > 40)}})]
        if request["command"] == command:
            asked.append({**request, "id": 0})
            if len(asked) == 1:
                return []
        return [(request, {"job": {"id": "0000000a", "attempt": 3}} | more)]

    with client(answer) as control:
        ask = getattr(control, command)
        ask() if command in ("jobs", "reload") else ask("0000000a")
    assert asked[0] == asked[1]
    assert len(asked[0].get("key", "")) == (16 if command == "reload" else 0)
    assert asked[0].get("attempt") == (4 if command == "retry" else None)


def test_a_part_of_a_result_that_is_lost_is_asked_for_again(client):
    """Of a daemon that is silent for longer than an answer takes, then there."""
    asked, looks = [], []

    def answer(request):
        if request["command"] == "result":
            asked.append(request["offset"])
            return [] if len(asked) == 1 else [(request, {"bytes": 2, "frame": b"x"})]
        looks.append(request)
        fields = {"status": {"stream": "s", "epoch": 1}, "job": {"id": "0000000a"}}
        return [(request, fields)] if len(looks) > 4 else []

    with client(answer, 0.2) as control:
        assert b"".join(bytes(part) for part in control.result_parts("0000000a")) == b"xx"
    assert asked == [0, 0, 1]


def test_a_request_that_the_daemon_cannot_read(client):
    """One too large is not sent; of others it cannot repeat the number."""
    said = {"id": None, "ok": False, "reason": "version", "message": "must be 3"}

    def answer(request):
        return [(request, said)]

    with client(answer) as control:
        for size in (1 << 16, 2 << 20):
            with pytest.raises(UsageError, match="at most 65536 can be sent"):
                control.submit(["lcs", "x" * size])
        for ask in (control.status, lambda: control.submit(["lcs", "a.fa", "b.fa"])):
            with pytest.raises(RefusedError, match="must be 3"):
                ask()


@pytest.mark.parametrize("gone", range(8))
@pytest.mark.parametrize("retried", [True, False])
def test_no_job_is_missing_where_others_move_between_two_pages(client, gone, retried):
    """One is forgotten, or runs again and so comes behind all, after the first page."""
    jobs = [{"id": f"{number:08x}"} for number in range(8)]
    moved = []

    def answer(request):
        if request["command"] == "status":
            return [(request, {"status": {}})]
        first = request["first"]
        page = jobs[first : first + PAGE]
        following = first + len(page)
        fields = {"jobs": page, "next": following if following < len(jobs) else None}
        if not moved:
            moved.append(jobs.pop(gone))
            jobs.extend(moved if retried else [])
        return [(request, fields)]

    with client(answer) as control:
        found = control.jobs()
    ids = [job["id"] for job in found]
    assert len({*ids}) == len(ids)
    assert {job["id"] for job in jobs} - {*ids} == set()
