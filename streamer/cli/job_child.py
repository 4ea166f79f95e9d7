"""A job's process: ``job_child PARENT REPORT DEVICE_BYTES MOST_BYTES NICE SHOWN_FROM ...``.

PARENT: the PID of the process that starts it; the job ends with the thread that started it. REPORT:
a descriptor for its progress. DEVICE_BYTES: GPU memory it may use, 0: no GPU. MOST_BYTES: the most
bytes of a file. NICE: as in nice(2). SHOWN_FROM: a prefix to remove from the names of inputs.
"""

import os
import resource
import sys
import time
from contextlib import suppress
from pathlib import Path

from streamer.__main__ import run

_REPORT_SECONDS = 0.1
_OOM_SCORE = 1000


def main() -> None:
    """Run the command line after these six, at that priority on half the cores."""
    parent, report, device_bytes, most_bytes, nice = (int(sys.argv.pop(1)) for _ in range(5))
    shown_from = sys.argv.pop(1)
    from streamer.cli import streams
    from streamer.daemon.process import give_way
    from trie.cpu.machine import end_with, half_of_cores

    end_with(parent)
    give_way(nice)
    # whole cores: a thread beside one of the daemon's on the same core would slow it
    os.sched_setaffinity(0, half_of_cores(os.sched_getaffinity(0)))
    # if memory runs out, the kernel ends the job, not its daemon
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(_OOM_SCORE))
    limit_files(most_bytes)
    if device_bytes:
        os.environ["STREAMER_DEVICE_BYTES"] = str(device_bytes)
    else:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    # imported only now, since it takes half a second
    from streamer.sequences import source

    source.shown_from = shown_from
    os.set_blocking(report, False)
    streams.follow = ProgressPipe(report)
    run()


def limit_files(most: int) -> None:
    """Limit the files of this process to ``most`` bytes, or to a lower hard limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))


class ProgressPipe:
    """Writes the progress of a command to a pipe, as a line now and then."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._next = 0.0

    def __call__(self, done: int, total: int | None) -> None:
        now = time.monotonic()
        if not total or now < self._next:
            return
        self._next = now + _REPORT_SECONDS
        # a reader that does not read must not block the work
        with suppress(BlockingIOError, BrokenPipeError):
            os.write(self._pipe, b"%.4f\n" % (done / total))


if __name__ == "__main__":
    main()
