"""Working under a limit on the process's address space (``ulimit -v``, batch systems).

When an allocation fails, Python raises MemoryError, but LLVM and its threads end the process, some
after thousands of lines of output. So under a limit they get few threads and pools, and their
callers check first that enough memory is left. Without a limit nothing changes.
"""

from __future__ import annotations

import ctypes
import os
import resource

MINIMUM = 768 << 20
"""Bytes of address space for the libraries, their threads, and compiling kernels."""

_M_ARENA_MAX = -8  # of mallopt in glibc's malloc.h


def limit() -> int | None:
    """The limit in bytes of address space; None if there is none."""
    soft = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if soft == resource.RLIM_INFINITY else soft


def prepare() -> None:
    """Under a limit, make libraries that are loaded later reserve little memory.

    Environment variables that are already set stay unchanged. Raises MemoryError if the limit is
    too low.
    """
    most = limit()
    if most is None:
        return
    if most < MINIMUM:
        raise MemoryError(
            f"the limit of {_mb(most)} (ulimit -v) is too low, {_mb(MINIMUM)} are needed"
        )
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # each thread's pool would reserve 64 MiB
    ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


def require(size: int, what: str) -> None:
    """Raise MemoryError unless ``size`` more bytes fit under the limit."""
    most = limit()
    if most is None:
        return
    with open("/proc/self/statm", "rb") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    if used + size > most:
        left = f"{_mb(max(0, most - used))} are left of {_mb(most)} (ulimit -v)"
        raise MemoryError(f"{what} needs {_mb(size)}, {left}")


def _mb(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"
