"""A daemon whose engine does not end: whoever listens is told, and nothing is left behind."""

from __future__ import annotations

import threading

import pytest

from streamer.client import Status, Subscriber
from streamer.daemon import config
from streamer.daemon import service as module
from streamer.protocol.endpoints import socket_path
from tests.daemon_kit import DEADLINE

pytestmark = pytest.mark.whole


class Left(BaseException):
    """In place of the end of the process."""


def test_the_end_is_said_although_the_engine_loads_on(path, monkeypatch):
    loading, enough = threading.Event(), threading.Event()

    def load(*_):
        loading.set()
        assert enough.wait(DEADLINE)

    monkeypatch.setattr(module, "warm_up", load)
    monkeypatch.setattr(module, "_JOIN_SECONDS", 0.01)
    service = module.Service(config.load(path))
    endpoints = service.start()
    files = [socket_path(endpoint) for endpoint in endpoints.values()]
    assert all(file.exists() for file in files)
    try:
        with Subscriber(endpoints["feed"], ["status"]) as feed:
            assert feed.wait_for_daemon(DEADLINE)
            assert loading.wait(DEADLINE)
            service.drain("enough")
            service.wait()
            assert service.stuck == ["engine"]
            states = [message.state for message in feed if isinstance(message, Status)]
            assert states[-1] == "ended"
        assert not any(file.exists() for file in files)
    finally:
        enough.set()
        service._engine.join(DEADLINE)
    assert not service.stuck


def test_who_leaves_in_a_hurry_leaves_no_files(tmp_path, monkeypatch, path):
    def end(code):
        raise Left(code)

    monkeypatch.setattr(module.os, "_exit", end)
    service = module.Service(config.load(path))
    there = tmp_path / "there"
    there.touch()
    gone = f"ipc://{tmp_path}/gone"
    service.status.endpoints |= {"feed": f"ipc://{there}", "ingest": gone, "control": "tcp://x:1"}
    with pytest.raises(Left) as left:
        service.leave(130)
    assert left.value.args == (130,)
    assert not there.exists()
    service._stop()
