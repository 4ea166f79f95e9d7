"""The CPU and memory of this machine, and a process that ends with its parent.

Working under a limit on the process's address space (``ulimit -v``, batch systems).

When an allocation fails, Python raises MemoryError, but LLVM and its threads end the process, some
after thousands of lines of output. So under a limit they get few threads and pools, and their
callers check first that enough memory is left. Without a limit nothing changes.
"""

import ctypes
import os
import platform
import resource
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress
from itertools import chain
from pathlib import Path

LIBC = ctypes.CDLL(None)
"""The C library, opened once: each CDLL is a cycle of objects."""

_CPUS = Path("/sys/devices/system/cpu")


def processor_name() -> str:
    """The CPU's name as the system reports it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.machine()


def half_of_cores(cpus: Iterable[int], folder: Path = _CPUS) -> set[int]:
    """All threads of the later half of the cores, rounded down; half the threads of a sole core.

    Machines number either the threads of a core one after the other, or first one of each core.
    folder: where Linux describes the CPUs; those that it does not describe count as cores.
    """

    def core(cpu: int) -> int:
        try:
            siblings = (folder / f"cpu{cpu}/topology/thread_siblings_list").read_text()
            return int(siblings.replace("-", ",").split(",")[0])
        except (OSError, ValueError):
            return cpu

    threads: dict[int, list[int]] = {}
    for cpu in sorted(cpus):
        threads.setdefault(core(cpu), []).append(cpu)
    cores = list(threads.values())
    if len(cores) == 1:
        cores = [[cpu] for cpu in cores[0]]
    return set(chain(*cores[-max(1, len(cores) // 2) :]))


def memory_bytes() -> int:
    """The machine's memory in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


_PR_SET_PDEATHSIG = 1  # from Linux, prctl.h


def end_with(parent: int) -> None:
    """Have this process killed when the thread of ``parent`` that started it ends."""
    LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        # the parent has already ended
        sys.exit(1)


MINIMUM = 768 << 20
"""Bytes of address space for the libraries, their threads, and compiling kernels."""

_M_ARENA_MAX = -8  # of mallopt in glibc's malloc.h


def give_back() -> None:
    """Give freed memory back to the system: that between blocks in use, too."""
    with suppress(AttributeError):  # of a C library other than glibc
        LIBC.malloc_trim(0)


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
    LIBC.mallopt(_M_ARENA_MAX, 1)


def require(size: int, what: str) -> None:
    """Raise MemoryError unless ``size`` more bytes fit under the limit."""
    most = limit()
    if most is None:
        return
    with open("/proc/self/statm", "rb") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    if used + size > most:
        rest = f"{_mb(max(0, most - used))} are left of {_mb(most)} (ulimit -v)"
        raise MemoryError(f"{what} needs {_mb(size)}, {rest}")


def _mb(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"
