"""The process of the page, where the daemon ends before it serves."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.daemon_kit import running
from tests.waiting import DEADLINE, until

pytest.importorskip("uvicorn", reason="the live page needs starlette and uvicorn")
pytestmark = pytest.mark.whole

IMPORTING = "import time; time.sleep(600)"


def test_a_process_that_has_not_begun_is_ended_at_once(path, monkeypatch, capfd):
    """It does not look at its standard input yet."""
    started = []

    class Importing(subprocess.Popen):
        def __init__(self, line, **how):
            started.append(self)
            super().__init__([sys.executable, "-c", IMPORTING], **how)

    monkeypatch.setattr("streamer.daemon.child.subprocess.Popen", Importing)
    monkeypatch.setattr("streamer.daemon.child._END_SECONDS", DEADLINE)
    with running(path, ["web.endpoint=127.0.0.1:0"]) as daemon:
        until(lambda: daemon.service._web.process, "the process")
    (child,) = started
    assert child.returncode
    assert "did not end" not in capfd.readouterr().err
