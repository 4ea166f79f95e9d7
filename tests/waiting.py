"""Waits for conditions that must come true, however slow the machine is."""

from __future__ import annotations

import fcntl
import os
import resource
import struct
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO

DEADLINE = 600.0
"""Seconds after which a wait fails: less than the time limit of a test.

A first run that compiles takes a minute, and several on slow, shared cores.
"""


# looking often would take the core that what is awaited needs: the longer it takes, the less often
_LOOK_SECONDS, _LEAST_OFTEN, _SHARE = 0.002, 0.02, 1 / 20


def until(holds: Callable[[], object], what: str) -> None:
    """Return once it holds; AssertionError at the deadline."""
    begun = time.monotonic()
    while not holds():
        waited = time.monotonic() - begun
        assert waited < DEADLINE, f"waited {DEADLINE:g} s in vain: {what}"
        time.sleep(min(max(_LOOK_SECONDS, _SHARE * waited), _LEAST_OFTEN))


@contextmanager
def beside(work: Callable[[threading.Event], object]) -> Iterator[None]:
    """Run ``work`` in a thread until the end, when the event that it gets is set."""
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


@contextmanager
def descriptors_left(count: int) -> Iterator[None]:
    """This process can open this many more files, if there are no gaps behind them."""
    first = os.dup(0)
    os.close(first)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (first + count, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
