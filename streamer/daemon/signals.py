"""A daemon as a process: it runs until a signal or a command has drained it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType
from typing import Any

from streamer.daemon import logs
from streamer.daemon.config import Config
from streamer.daemon.jobs.job_inputs import Parse
from streamer.daemon.service import Service


@logs.unfailing()
def run(
    config: Config,
    *,
    accept_loss: bool = False,
    ready: Callable[[dict[str, str]], None] | None = None,
    parse_job: Parse | None = None,
) -> None:
    """Run a daemon until SIGINT, SIGTERM or ``drain`` on its control socket has drained it.

    Call it in the main thread. A second signal ends the process at once. ``ready`` is called with
    the endpoints as bound. accept_loss: start without the damaged parts of the journal. Log lines
    that cannot be written are dropped. parse_job: checks command lines of jobs.
    StreamerError if the daemon cannot start or one of its threads fails.
    """
    service: Service | None = None
    signalled = False

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal signalled
        if service is None:
            # the journal is being read: it survives this, as it does a kill, and nothing is bound
            os._exit(0)
        if signalled:
            service.leave(128 + number)
        signalled = True
        service.drain(signal.Signals(number).name)

    previous: dict[int, Any] = {
        n: signal.signal(n, on_signal) for n in (signal.SIGINT, signal.SIGTERM)
    }
    # the caller may have ignored SIGCHLD; then exit codes of child processes would be lost
    previous[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        service = Service(config, accept_loss=accept_loss, parse_job=parse_job)
        endpoints = service.start()
        if ready is not None:
            ready(endpoints)
        service.wait()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    if service.stuck:
        logs.finish()
        service.leave(0)
