"""A notice that a first run compiles kernels: this takes seconds, later runs start at once."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

NOTICE = "compiling for this machine, once (some seconds; later runs start at once) ..."


def _to_stderr(line: str) -> None:
    print(f"streamer: {line}", file=sys.stderr, flush=True)


@contextmanager
def compile_notice(*, quiet: bool, report: Callable[[str], object] = _to_stderr) -> Iterator[None]:
    """Report the notice at the first kernel missing from numba's cache.

    Warnings about that cache are reported too. ``report`` writes to standard error by default.
    """
    from numba.core import event

    from trie.cpu import jit

    class Listener(event.Listener):
        reported = quiet

        def on_start(self, event: Any) -> None:
            if not self.reported:
                self.reported = True
                report(NOTICE)

        def on_end(self, event: Any) -> None:
            pass

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
