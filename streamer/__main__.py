"""``python -m streamer`` and the console script."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]

if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
    # an interrupt during the first imports: no traceback
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

import os
import sys

from trie.cpu.interrupts import ignore_interrupts, leave_on_interrupt


def run() -> None:
    """Entry point of the console script."""
    leave_on_interrupt()
    import threading

    from streamer.cli.app import main
    from streamer.cli.streams import clean_up_on_signals, flush_streams, open_streams

    open_streams()
    clean_up_on_signals()
    code = flush_streams(main())
    ignore_interrupts()
    if code and threading.active_count() > 1:
        # a thread that still waits for input must not hold up the end
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    run()
