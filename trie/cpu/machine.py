"""The CPU and memory of this machine, and a process that ends with its parent."""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import sys
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

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
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        # the parent has already ended
        sys.exit(1)
