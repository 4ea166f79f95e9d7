"""Say so when a first run has to compile kernels: it takes seconds, later runs start at once."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

NOTICE = "compiling for this machine, once (some seconds; later runs start at once) ..."


def _to_stderr(notice: str) -> None:
    print(f"streamer: {notice}", file=sys.stderr, flush=True)


@contextmanager
def compile_notice(*, quiet: bool, report: Callable[[str], object] = _to_stderr) -> Iterator[None]:
    """Report the notice, by default on standard error, at the first kernel missing in the cache."""
    from numba.core import event

    class Listener(event.Listener):
        said = quiet

        def on_start(self, event: Any) -> None:
            if not self.said:
                self.said = True
                report(NOTICE)

        def on_end(self, event: Any) -> None:
            pass

    with event.install_listener("numba:compile", Listener()):
        yield
