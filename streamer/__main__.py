"""``python -m streamer`` and the console script."""

from __future__ import annotations

import os
import sys

from streamer.cli.interrupts import ignore_interrupts, leave_on_interrupt


def run() -> None:
    """Entry point of the console script."""
    leave_on_interrupt()
    import threading

    from streamer.cli.app import main

    open_closed_streams()
    code = main()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            # main has said so; the interpreter must not try again
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    ignore_interrupts()
    if code and threading.active_count() > 1:
        # a thread that still waits for input must not hold up the end
        os._exit(code)
    sys.exit(code)


def open_closed_streams() -> None:
    """Standard streams that the caller has closed fail when they are used, and only then."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            # the wrong way round for input and output; what is said on standard error is lost
            flags = (os.O_WRONLY, os.O_RDONLY, os.O_WRONLY)[number]
            os.dup2(os.open(os.devnull, flags), number)
            setattr(sys, name, open(number, "w" if number > 0 else "r", closefd=False))


if __name__ == "__main__":
    run()
