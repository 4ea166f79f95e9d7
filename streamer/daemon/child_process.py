"""How a process is, as Linux says: what it waits for, and how busy it was."""

from __future__ import annotations

import os
from pathlib import Path

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
    """Those of proc_pid_stat(5) behind the name, which may hold anything; none if it is gone."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def state_of(process: int) -> str:
    """What a process does now, in words."""
    fields = _fields(process)
    return _STATES.get(fields[0], f"is in state {fields[0]}") if fields else "has ended"


def cpu_seconds(process: int) -> float:
    """Seconds of a CPU that a process took so far, 0 if it is gone."""
    fields = _fields(process)
    return (int(fields[11]) + int(fields[12])) / _TICKS if fields else 0.0
