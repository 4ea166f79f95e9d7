"""``--profile``: where the time of a command went, stage by stage, and what limited its speed."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from streamer.cli.choices import say
from streamer.sequences.source import size_of_files
from trie.cpu.stages import Stages
from trie.cpu.team import Team
from trie.cpu.threads import usable_cores

_STAGES = ("read", "decompress", "parse", "match", "format", "write")
_HEAD = f"{'stage':<12}{'busy s':>9}{'input s':>9}{'output s':>9}{'MB':>11}{'M bases/s':>11}"
_BUSY = 0.85  # a stage or the threads that worked more than this share of the time were the limit


@contextmanager
def profiled(wanted: bool, threads: int, reads: Sequence[str]) -> Iterator[Team]:
    """A team of this many threads, 0 for every core; prints its profile if ``wanted``."""
    stages = Stages(*_STAGES)
    with Team(threads or usable_cores(), live=size_of_files(reads) is None, stages=stages) as team:
        yield team
    if wanted:
        for line in profile_lines(stages, team.threads, time.perf_counter() - stages.began):
            say(line)


def profile_lines(stages: Stages, threads: int, seconds: float) -> list[str]:
    """The table of the stages, which took ``seconds``, and the line about what limited them.

    Busy seconds are summed over all threads; a stage waits for input or for room for its output.
    """
    bases = stages.size("parse")
    lines = [_HEAD]
    for name in stages.names:
        busy = stages.seconds(name, "busy")
        if busy:
            size = f"{stages.size(name) / 1e6:,.1f}" if stages.size(name) else ""
            waits = "".join(f"{stages.seconds(name, kind):>9.3f}" for kind in ("input", "output"))
            rate = f"{bases / busy / 1e6:,.0f}"
            lines.append(f"{name:<12}{busy:>9.3f}{waits}{size:>11}{rate:>11}")
    rate = f"{bases / max(seconds, 1e-9) / 1e6:,.0f}"
    return [
        *lines,
        f"{bases:,} bases in {seconds:.3f} s, {rate} M a second: "
        + _bound(stages, threads, seconds),
    ]


def _bound(stages: Stages, threads: int, seconds: float) -> str:
    """The bound of the speed, in words."""
    busy = {name: stages.seconds(name, "busy") for name in stages.names}
    all_busy = max(sum(busy.values()), 1e-9)
    # beside as many processes, this one writes
    share = min(1.0, all_busy / max(threads * seconds, 1e-9))
    largest = max(busy, key=lambda name: busy[name])
    of_it = 100 * busy[largest] / all_busy
    if share < _BUSY:
        # the other stages use all threads in each step
        for name in sorted({"read", "decompress", "parse", "write"} - stages.shared):
            if _BUSY * seconds < busy.get(name, 0.0) <= seconds:
                return f"bound by {name}, which is done by one thread at a time"
    plural = "s" if threads > 1 else ""
    return f"{threads} thread{plural} {100 * share:.0f} % busy, {of_it:.0f} % of it {largest}"
