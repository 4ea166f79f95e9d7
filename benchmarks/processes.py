"""Commands as users run them, each a process: seconds, and the peak memory of the process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

_MEASURE = """
import os, sys, time
told, command = int(sys.argv[1]), sys.argv[2:]
begun = time.perf_counter()
child = os.posix_spawnp(command[0], command, os.environ)
_, status, usage = os.wait4(child, 0)
seconds = time.perf_counter() - begun
cpu, code = usage.ru_utime + usage.ru_stime, os.waitstatus_to_exitcode(status)
os.write(told, b"%f %f %d %d" % (seconds, cpu, usage.ru_maxrss, code))
"""
"""A child's peak memory includes that of the process that starts it: so a small one does."""


def streamer_command(*arguments: Any) -> list[str]:
    """A command line of this program."""
    return [sys.executable, "-m", "streamer", *map(str, arguments)]


def measured(command: Sequence[str], *, errors: IO[bytes] | int | None = None) -> dict[str, float]:
    """Wall and CPU seconds and the peak resident memory of a command, whose output is dropped.

    errors: where its standard error goes. CalledProcessError if it fails.
    """
    reader, writer = os.pipe()
    with os.fdopen(reader) as told:
        words = [sys.executable, "-S", "-c", _MEASURE, str(writer), *command]
        with os.fdopen(writer):
            subprocess.run(words, stdout=subprocess.DEVNULL, stderr=errors, pass_fds=[writer])
        seconds, cpu, peak, code = map(float, told.read().split())
    if code:
        raise subprocess.CalledProcessError(int(code), list(command))
    return {"seconds": seconds, "CPU seconds": cpu, "peak GB": peak * 1024 / 1e9}


def cpu_seconds(process: int) -> float:
    """CPU seconds that all threads of a process have used so far."""
    # after the name, which may hold anything
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def child_of(process: int, word: str) -> int:
    """The child with this word in its command line; LookupError if there is none."""
    for task in Path(f"/proc/{process}/task").iterdir():
        for child in (task / "children").read_text().split():
            if word.encode() in Path(f"/proc/{child}/cmdline").read_bytes():
                return int(child)
    raise LookupError(f"process {process} has no child {word}")
