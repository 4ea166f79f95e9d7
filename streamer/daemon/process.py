"""The daemon's processes: their tasks, memory that is kept, file descriptors, priority.

The state of a process as Linux reports it: what it waits for, and how busy it was.
"""

import contextlib
import json
import os
import resource
import signal
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from streamer.daemon.logs import Format, Level
from trie.cpu.machine import LIBC

UNBEGUN_ENDS = signal.SIGUSR1
"""Ends the page's process while it is importing, which may take seconds; then it is ignored."""


@dataclass(frozen=True)
class ProcessTask:
    """The task of a process that the daemon starts. endpoint: as bound. level, format: of its log.

    listener: the descriptor of the socket that listens there, inherited.
    """

    endpoint: str
    listener: int
    level: Level
    format: Format

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The task that ``to_json`` wrote."""
        return cls(**json.loads(text))

    def to_json(self) -> str:
        """The task as one line."""
        return json.dumps(asdict(self))


@dataclass(frozen=True)
class WebTask(ProcessTask):
    """That of the live page, at HOST:PORT.

    feed, control: endpoints of the daemon. token: "" if the page needs none. hosts: further host
    names of the page. keys: the fields of ``ClientKeys``, none if the daemon needs no keys.
    """

    feed: str
    control: str
    token: str
    hosts: Sequence[str]
    keys: Mapping[str, str] | None = None


@dataclass(frozen=True)
class SyncTask(ProcessTask):
    """That of sync. wake: a descriptor that it inherits. limits: those of ``SyncLimits``.

    keys: the folder of keys, empty for none. contents: a file with the keys that the daemon uses,
    which the folder may no longer have. These keys are secret, unlike this task.
    """

    wake: int
    directory: str
    limits: Sequence[int]
    keys: str = ""
    contents: int = -1


# parameters of mallopt in glibc's malloc.h
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
# the largest value that it takes
_FROM_HEAP = 1 << 25
_KEPT_BYTES = 1 << 30

# the most descriptors for connections, whatever the limit: each takes tens of kilobytes
_MOST = 1 << 16
# reserved for files, and for connections that come before the listeners are shut; most of a small
# limit, because libzmq accepts hundreds while the watching thread waits for a core
_SPARE = 4096


def keep_freed_memory() -> None:
    """Make malloc keep freed memory: blocks below 32 MiB come from the heap. Needs glibc.

    By default malloc gets large blocks from the kernel and returns them, and each thread does so
    with its arena. Every batch is then written to fresh pages: 256 page faults a megabyte, which
    cost more than everything else done with it. Existing threads keep their arenas.
    """
    try:
        mallopt = LIBC.mallopt
    except AttributeError:
        return
    mallopt(_M_ARENA_MAX, 1)
    mallopt(_M_MMAP_THRESHOLD, _FROM_HEAP)
    mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def raise_limit() -> int:
    """Raise the limit on descriptors as far as possible; returns the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return soft if soft != resource.RLIM_INFINITY else _MOST + _SPARE


def spare(limit: int) -> int:
    """How many descriptors of a limit are reserved, that is, not for connections."""
    return max(limit - _MOST, min(limit * 5 // 8, _SPARE))


def open_descriptors() -> int:
    """How many descriptors are open."""
    try:
        # Linux before 6.2 reports no size
        return os.stat("/proc/self/fd").st_size or len(os.listdir("/proc/self/fd"))
    except OSError:
        # none is left to list them
        return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def in_memory(secret: str) -> int:
    """The descriptor of a file that is in memory only, to pass keys to another process."""
    descriptor = os.memfd_create("keys")
    os.fchmod(descriptor, 0o600)
    os.write(descriptor, secret.encode())
    return descriptor


def give_way(nice: int) -> None:
    """Yield the CPU to other processes; nice: as in nice(2), 1 to 19.

    Linux may divide the CPU among sessions first, then among processes (``autogroup`` in sched(7)).
    For a process in its own session nice(2) then makes no difference, but this file does.
    """
    os.nice(nice)
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(nice))


def core_seconds() -> tuple[float, float]:
    """Seconds that the main thread spent on a core and waiting for one; zeros if unknown."""
    try:
        ran, waited, _ = Path("/proc/self/schedstat").read_text().split()
    except (OSError, ValueError):
        return 0.0, 0.0
    return int(ran) / 1e9, int(waited) / 1e9


_STATES = {
    "R": "runs",
    "S": "sleeps",
    "D": "waits for the disk",
    "T": "is stopped by a signal",
    "t": "is stopped by a debugger",
    "Z": "has ended",
}
_TICKS = os.sysconf("SC_CLK_TCK")


def _fields(process: int) -> list[str]:
    """The fields of proc_pid_stat(5) after the name, which may hold anything; none if gone."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def state_of(process: int) -> str:
    """The state of a process, in words."""
    fields = _fields(process)
    return _STATES.get(fields[0], f"is in state {fields[0]}") if fields else "has ended"


def cpu_seconds(process: int) -> float:
    """CPU seconds that a process has used so far, 0 if it is gone."""
    fields = _fields(process)
    return (int(fields[11]) + int(fields[12])) / _TICKS if fields else 0.0
