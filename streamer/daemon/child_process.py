"""The state of a process as Linux reports it: what it waits for, and how busy it was."""

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
    """The fields of proc_pid_stat(5) after the name, which may hold anything; none if gone."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def state_of(process: int) -> str:
    """What a process is doing, in words."""
    fields = _fields(process)
    return _STATES.get(fields[0], f"is in state {fields[0]}") if fields else "has ended"


def cpu_seconds(process: int) -> float:
    """CPU seconds that a process has used so far, 0 if it is gone."""
    fields = _fields(process)
    return (int(fields[11]) + int(fields[12])) / _TICKS if fields else 0.0
