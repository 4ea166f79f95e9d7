"""End a process with its parent."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # from Linux, prctl.h


def end_with(parent: int) -> None:
    """Have this process killed when the thread of ``parent`` that started it ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        # the parent has already ended
        sys.exit(1)
