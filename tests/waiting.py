"""Waiting for what must come, however slow the machine is."""

from __future__ import annotations

import fcntl
import os
import struct
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO

DEADLINE = 600.0
"""Seconds after which something is given up that has gone wrong: below the limit of a test.

What compiles at its first run takes a minute, and several where cores are slow and shared.
"""


def until(holds: Callable[[], object], what: str) -> None:
    """Return once it holds; AssertionError at the deadline."""
    deadline = time.monotonic() + DEADLINE
    while not holds():
        assert time.monotonic() < deadline, f"waited {DEADLINE:g} s in vain: {what}"
        os.sched_yield()


@contextmanager
def beside(work: Callable[[threading.Event], object]) -> Iterator[None]:
    """``work`` runs in a thread of its own, until the event that it gets is set, at the end."""
    stop = threading.Event()
    thread = threading.Thread(target=work, args=(stop,))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(DEADLINE)


def unread(pipe: IO[bytes]) -> int:
    """How many bytes of a pipe nobody has read yet."""
    count: int = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0]
    return count
