"""Read many small files at the same time, each in a thread or a forked process of its own.

As sequencers write them: compressed, so that the threads of a team would wait for the one that
decompresses a file.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, groupby
from typing import TypeVar

from streamer.sequences.source import FORK_THREADS, STDIN, size_of_files
from trie.cpu.forks import forked
from trie.cpu.team import Team

R = TypeVar("R")

Works = Iterator[Callable[[], R]]
"""The work on the reads of a file, batch after batch."""

SMALL_BYTES = 1 << 26
"""The largest such file: nobody helps with the last one, and results of a thread wait in memory."""


def readers_of(team: Team | None) -> int:
    """How many files a team should read at the same time; 0: one after the other."""
    return 0 if team is None or team.threads < FORK_THREADS else team.threads


def runs_of_files(paths: Iterable[str], readers: int) -> Iterator[list[str]]:
    """Yield files that ``readers`` threads or workers read at once, or single ones they share."""
    if not readers:
        yield from ([path] for path in paths)
        return
    for small, run in groupby(paths, _is_small):
        files = list(run)
        if small and 2 * len(files) >= readers:
            yield files
        else:
            yield from ([path] for path in files)


def _is_small(path: str) -> bool:
    size = None if path == STDIN else size_of_files([path])
    return size is not None and size <= SMALL_BYTES


def at_once(
    paths: list[str],
    works_on: Callable[[str, Team, Callable[[int], None]], Works[R]],
    team: Team,
    *,
    forks: bool,
) -> Iterator[tuple[int, R]]:
    """Yield the results of the work on the files, in order, with the bytes read so far.

    works_on: returns the work on a file for a team of one, and calls a function with the bytes
    read. forks: in processes, where the work has no effect but its results; else in threads, where
    those of a whole file are kept in memory.
    """

    def work_on_file(number: int) -> Iterator[tuple[int, int, R]]:
        read = deque([0], maxlen=1)
        with Team(1, stages=team.stages) as alone:
            for made in works_on(paths[number], alone, read.append):
                yield number, read[0], made()

    team.stages.shared |= {"read", "decompress"}
    numbers = range(len(paths))
    found: Iterable[tuple[int, int, R]]
    if forks:
        found = forked(
            numbers, work_on_file, team.threads, team.stages, works="parse", takes="write"
        )
    else:
        whole = team.line(
            numbers, lambda number: [*work_on_file(number)], team.threads + 2, works="parse"
        )
        found = chain.from_iterable(whole)
    before, last = 0, (0, 0)
    for number, size, result in found:
        if number != last[0]:
            before += last[1]
        last = number, size
        yield before + size, result
