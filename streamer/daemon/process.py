"""What the daemon asks of its processes: memory that stays, file descriptors, priority."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1  # of Linux, prctl.h

# parameters of mallopt in glibc's malloc.h
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
# the largest that it takes
_FROM_HEAP = 1 << 25
_KEPT_BYTES = 1 << 30

# the most descriptors for connections, whatever the limit is: each takes tens of kilobytes
_MOST = 1 << 16
# left for connections that come before the doors are shut, and for files; most of a small limit,
# because libzmq accepts hundreds while the thread that watches waits for a core
_SPARE = 4096


def keep_freed_memory() -> None:
    """Make malloc keep freed memory: blocks below 32 MiB come from the heap. Needs glibc.

    By default malloc gets large blocks from the kernel and returns them, as each thread does with
    its arena, so that every batch is written to fresh pages: 256 page faults a megabyte, which cost
    more than everything else that happens to it. Existing threads keep their arenas.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return
    mallopt(_M_ARENA_MAX, 1)
    mallopt(_M_MMAP_THRESHOLD, _FROM_HEAP)
    mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def raise_limit() -> int:
    """Raise the limit of descriptors as far as possible; returns how many may be open then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return soft if soft != resource.RLIM_INFINITY else _MOST + _SPARE


def spare(limit: int) -> int:
    """How many descriptors of a limit are not for connections."""
    return max(limit - _MOST, min(limit * 5 // 8, _SPARE))


def open_descriptors() -> int:
    """How many descriptors are open."""
    # Linux before 6.2 reports no size
    return os.stat("/proc/self/fd").st_size or len(os.listdir("/proc/self/fd"))


def end_with(parent: int) -> None:
    """Have this process killed when the thread of ``parent`` that started it ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        # it ended before that
        sys.exit(1)


def in_memory(secret: str) -> int:
    """The descriptor of a file of keys that is on no disk, for another process."""
    descriptor = os.memfd_create("keys")
    os.fchmod(descriptor, 0o600)
    os.write(descriptor, secret.encode())
    return descriptor


def give_way(nice: int) -> None:
    """Have other processes use the CPU first; nice: as in nice(2), 1 to 19.

    Linux may share the CPU among sessions before it looks at processes (``autogroup`` in sched(7)).
    To a process in a session of its own, nice(2) then makes no difference, but this file does.
    """
    os.nice(nice)
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(nice))


def core_seconds() -> tuple[float, float]:
    """Seconds that the main thread was on a core, and waited for one; zeros where Linux is mute."""
    try:
        ran, waited, _ = Path("/proc/self/schedstat").read_text().split()
    except (OSError, ValueError):
        return 0.0, 0.0
    return int(ran) / 1e9, int(waited) / 1e9
