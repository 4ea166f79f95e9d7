"""The CPU and memory of this machine."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
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


def by_core(cpus: Iterable[int], folder: Path = _CPUS) -> list[int]:
    """CPUs in an order in which the hardware threads of a core follow each other.

    Machines number either these, or first one thread of each core. folder: where Linux describes
    the CPUs; those that it does not describe count as cores.
    """

    def core(cpu: int) -> int:
        try:
            siblings = (folder / f"cpu{cpu}/topology/thread_siblings_list").read_text()
            return int(siblings.replace("-", ",").split(",")[0])
        except (OSError, ValueError):
            return cpu

    return sorted(cpus, key=lambda cpu: (core(cpu), cpu))


def memory_bytes() -> int:
    """The machine's memory in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
