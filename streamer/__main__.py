"""``python -m streamer`` and the console script."""

import _signal  # type: ignore[import-not-found]

if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
    # no traceback for an interrupt during the first imports
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

import atexit
import gc
import os
import sys
from typing import Any

from trie.cpu.interrupts import ignore_interrupts, leave_on_interrupt


def run(app: Any = None) -> None:
    """Entry point of the console script. app: other commands than the program's."""
    leave_on_interrupt()
    # Imported modules stay alive: collecting garbage among them takes a tenth of the startup time.
    gc.set_threshold(300_000, 20, 100)
    # NumPy starts a thread per core for linear algebra, which is not used here.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    import threading

    from streamer.cli.app import main
    from streamer.cli.streams import clean_up_on_signals, flush_streams, open_streams

    open_streams()
    clean_up_on_signals()
    code = flush_streams(main(app=app))
    ignore_interrupts()
    others = [each for each in threading.enumerate() if each is not threading.main_thread()]
    if code and others:
        # a thread still waiting for input must not delay the exit
        os._exit(code)
    if not all(thread.daemon for thread in others):
        sys.exit(code)
    # like sys.exit, without tearing down numba and LLVM, which takes a fifth of a second
    atexit._run_exitfuncs()
    os._exit(flush_streams(code))


if __name__ == "__main__":
    run()
