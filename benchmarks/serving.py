"""A daemon as users start it, in its own process, for measurements."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from streamer.client import Control
from streamer.client.client_errors import DaemonSilentError

SECONDS = 600.0  # the timeout of all waits
_LOOK_SECONDS = 0.01

Endpoints = dict[str, str]


@contextmanager
def serving(
    folder: Path, settings: Sequence[str]
) -> Iterator[tuple[Endpoints, subprocess.Popen[bytes]]]:
    """A ready daemon on the CPU, at local sockets in a folder; it is drained at the end."""
    endpoints = {name: f"ipc://{folder / name}" for name in ("ingest", "feed", "control", "sync")}
    settings = [
        "matching.device=cpu",
        "log.level=error",
        *(f"{name}.endpoint={place}" for name, place in endpoints.items()),
        *settings,
    ]
    options = [word for setting in settings for word in ("--set", setting)]
    process = subprocess.Popen([sys.executable, "-m", "streamer", "run", *options])
    try:
        deadline = time.monotonic() + SECONDS
        with Control(endpoints["control"]) as control:
            while not _is_ready(control):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise TimeoutError("the daemon did not start")
                time.sleep(_LOOK_SECONDS)
        yield endpoints, process
        process.terminate()
        process.wait(SECONDS)
    finally:
        process.kill()
        process.wait()


def _is_ready(control: Control) -> bool:
    try:
        return bool(control.status()["state"] == "running")
    except DaemonSilentError:
        return False
