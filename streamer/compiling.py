"""Say so when a first run has to compile kernels: it takes seconds, later runs start at once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

NOTICE = "compiling for this machine, once (some seconds; later runs start at once) ..."


@contextmanager
def compile_notice(*, quiet: bool) -> Iterator[None]:
    """Write the notice to standard error at the first kernel that is not in numba's cache."""
    from numba.core import event

    class Listener(event.Listener):
        said = quiet

        def on_start(self, event: Any) -> None:
            if not self.said:
                self.said = True
                print(f"streamer: {NOTICE}", file=sys.stderr, flush=True)

        def on_end(self, event: Any) -> None:
            pass

    with event.install_listener("numba:compile", Listener()):
        yield
