"""``python -m streamer.cli.daemon_child PARENT ...``: a command line that ends with its daemon.

PARENT: the number of the process that starts it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

from streamer.__main__ import run

_PR_SET_PDEATHSIG = 1  # of Linux, prctl.h


def main() -> None:
    """Run the command line behind PARENT; it is killed when the thread that started it ends."""
    end_with(int(sys.argv.pop(1)))
    run()


def end_with(parent: int) -> None:
    """Have this process killed when the thread of ``parent`` that started it ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        # it ended before that
        sys.exit(1)


if __name__ == "__main__":
    main()
