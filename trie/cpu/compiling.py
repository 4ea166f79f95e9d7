"""A notice that kernels are compiled: this may take long, and later runs do without."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

NOTICE = (
    "compiling for this machine, once (later runs start at once; `streamer warm-up` compiles for "
    "all commands) ..."
)
NOTICE_SECONDS = 2.0
"""Compiling that takes less in total is not worth a line."""


def _to_stderr(line: str) -> None:
    print(f"streamer: {line}", file=sys.stderr, flush=True)


@contextmanager
def compile_notice(*, quiet: bool, report: Callable[[str], object] = _to_stderr) -> Iterator[None]:
    """Report the notice, once, when kernels that are missing from the cache take long to compile.

    Warnings about that cache are reported too. ``report`` writes to standard error by default.
    """
    from numba.core import event

    from trie.cpu import jit

    class Listener(event.Listener):
        """Compilations nest, and threads compile at the same time: ``running`` counts them."""

        running = 0
        began = 0.0
        left = NOTICE_SECONDS
        reported = quiet
        timer: threading.Timer | None = None
        lock = threading.Lock()

        def on_start(self, event: Any) -> None:
            with self.lock:
                self.running += 1
                if self.running == 1 and not self.reported:
                    self.began = time.monotonic()
                    self.timer = threading.Timer(self.left, self.expire)
                    self.timer.daemon = True
                    self.timer.start()

        def on_end(self, event: Any) -> None:
            with self.lock:
                self.running -= 1
                if self.running == 0 and self.timer is not None:
                    self.timer.cancel()
                    self.timer = None
                    self.left -= time.monotonic() - self.began
            if self.left <= 0:
                self.expire()

        def expire(self) -> None:
            with self.lock:
                reported, self.reported = self.reported, True
            if not reported:
                report(NOTICE)

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if not quiet:
                report(record.getMessage())

    handler = Handler()
    jit.log.addHandler(handler)
    try:
        with event.install_listener("numba:compile", Listener()):
            yield
    finally:
        jit.log.removeHandler(handler)
