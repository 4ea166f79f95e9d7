"""Tasks of ``match`` with a fixed dictionary: batches of reads, whose rows workers format.

Workers read regions of plain FASTQ files themselves, where they find the same file under its path:
for so little work a base, sending the reads takes longer than the work.
Of exact matching on a CPU the matcher itself, with its index, is put once a node, and all workers
there read it in one place. Others are made in each worker from the dictionary. Reports of totals
add up what workers found, in the process that asks.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from operator import call
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer.cluster.cluster_tasks import ClusterTasks, Work, part_size
from streamer.cluster.connecting import Cluster
from streamer.dictionary.targets import Dictionary
from streamer.matching.matcher import StreamMatcher
from streamer.matching.reports import REPORTS
from streamer.matching.result import BatchResult
from streamer.matching.running_report import RowAnswer
from streamer.matching.spec import MatchSpec
from streamer.output.text_table import Format
from streamer.sequences.files import work_on_batches
from streamer.sequences.plain_blocks import FileRegion
from streamer.sequences.prefetch import prefetched
from streamer.sequences.read_batch import ReadBatch
from streamer.sequences.record_buffer import RecordBuffer
from streamer.sequences.side_by_side import Parsed, Worked, file_regions, parsed
from trie.cpu.stages import Stages
from trie.cpu.team import results_of

TASK_BASES = 1 << 24
"""Bases of a batch: a tenth of a second, for reading them from a file takes as long."""

TASK_BASES_OF_MANY_ROWS = 1 << 20
TASK_BASES_NEAR = 1 << 21  # within a distance
LEAST_BASES = 1 << 18
TASK_READS = 1_000_000
TEXT_OF_A_BASE = 2
"""Bytes of FASTQ, about."""


@dataclass(frozen=True)
class _Match:
    """matcher: made already, or dictionary and spec. report: of rows, None for the results."""

    matcher: StreamMatcher | None
    dictionary: Dictionary | None
    spec: MatchSpec
    report: str | None
    format_: Format


class _Prepared:
    def __init__(self, shared: _Match) -> None:
        matcher = shared.matcher
        if matcher is None:
            assert shared.dictionary is not None
            matcher = StreamMatcher(shared.dictionary, shared.spec)
        self.matcher = matcher
        self.format: Format = shared.format_
        self.answer: RowAnswer | None = None
        if shared.report is not None:
            near = matcher.spec.near
            targets = (matcher.stored if near else matcher.dictionary).targets
            self.answer = RowAnswer(REPORTS[shared.report], targets, matcher.spec.k)


def _run(prepared: _Prepared, batch: ReadBatch) -> NDArray[np.uint8] | BatchResult:
    """Lines of rows; or the result, without the reads, which the process that asks has."""
    matcher, answer = prepared.matcher, prepared.answer
    depths = answer is not None and answer.depths
    if matcher.side_by_side:
        result = matcher.match_alone(batch, want_depths=depths)
    else:
        result = matcher.match(batch, want_depths=depths, want_nodes=False)
    if answer is None:
        nothing = ReadBatch([], np.zeros(1, np.int64), np.zeros(0, np.uint8))
        return replace(result, batch=nothing)
    tables = answer.after(result)
    lines = [data for table in tables for data in table.formatted(prepared.format)]
    return np.frombuffer(b"".join(lines), dtype=np.uint8)


class FilePart(NamedTuple):
    """Bytes of a plain FASTQ file. version: its size and when it was changed, in ns."""

    path: str
    version: tuple[int, int]
    first: int
    stop: int


def _version(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_size, status.st_mtime_ns


def _run_part(
    prepared: _Prepared, part: ReadBatch | FilePart
) -> NDArray[np.uint8] | BatchResult | tuple[list[Worked[Any]], int] | None:
    """As ``_run``; of a part of a file what is ``Parsed`` of it, None if the file is not there."""
    if isinstance(part, ReadBatch):
        return _run(prepared, part)
    try:
        with open(part.path, "rb") as file:
            if _version(file.fileno()) != part.version:
                return None
            region = FileRegion(file.fileno(), part.first, part.stop)
            buffer = RecordBuffer(part.path, part.stop - part.first, TASK_READS)
            done = parsed(region, buffer, lambda piece: _run(prepared, piece.reads), Stages())
    except OSError:
        return None
    return None if done.worked is None else (done.worked, done.lines)


class _ByWorkers:
    """Regions of files that are tasks, of about ``size`` bytes each."""

    def __init__(self, tasks: ClusterTasks, size: int) -> None:
        self._tasks = tasks
        self._size = size

    def parsed(self, path: str, file: FileRegion) -> Generator[Parsed[Any]]:
        """As ``Elsewhere``."""
        path, version = os.path.abspath(path), _version(file.descriptor)
        sent: deque[FileRegion] = deque()

        def parts() -> Iterator[FilePart]:
            for region in file_regions(file, self._size):
                sent.append(region)
                yield FilePart(path, version, region.first, region.stop)

        for found in self._tasks.in_order(parts()):
            worked, lines = found or (None, 0)
            yield Parsed(sent.popleft(), worked, lines)


MATCH = Work(_Prepared, _run_part)


def task_bases(spec: MatchSpec, bases: int | None, workers: int, *, depths: bool) -> int:
    """Bases of a batch that is a task, of about ``bases`` in all."""
    usual = TASK_BASES_OF_MANY_ROWS if depths else TASK_BASES
    if spec.near:
        usual = TASK_BASES_NEAR
    return part_size(usual, min(LEAST_BASES, usual), bases, workers)


def _tasks(
    cluster: Cluster, matcher: StreamMatcher, stored: Dictionary, spec: MatchSpec,
    report: str | None, format_: Format,
) -> ClusterTasks:  # fmt: skip
    spec = replace(spec, threads=1)
    alone = matcher.side_by_side and spec.device == "cpu"
    shared = _Match(
        matcher if alone else None, None if alone else stored, spec, report, format_
    )  # fmt: skip
    return ClusterTasks(cluster, MATCH, shared, gpu=spec.device == "cuda")


def match_lines(
    cluster: Cluster, matcher: StreamMatcher, stored: Dictionary, spec: MatchSpec, report: str,
    format_: Format, paths: Iterable[str], bases: int,
    on_bytes: Callable[[int], None] | None = None,
) -> Iterator[NDArray[np.uint8]]:  # fmt: skip
    """The formatted rows of a report of rows of files, in order.

    matcher: one of this process. spec: of the workers' matchers. bases: of a task, about.
    """
    tasks = _tasks(cluster, matcher, stored, spec, report, format_)
    batches = work_on_batches(
        paths, lambda batch: batch, batch_bases=bases, batch_reads=TASK_READS, on_bytes=on_bytes,
        elsewhere=_ByWorkers(tasks, TEXT_OF_A_BASE * bases),
    )  # fmt: skip
    return results_of(batches, lambda some: tasks.in_order(prefetched(map(call, some))))


def match_results(
    cluster: Cluster, matcher: StreamMatcher, stored: Dictionary, spec: MatchSpec,
    batches: Iterable[ReadBatch],
) -> Iterator[BatchResult]:  # fmt: skip
    """The results of batches, in order."""
    sent: list[ReadBatch | None] = []

    def noted() -> Iterator[ReadBatch]:
        for batch in batches:
            sent.append(batch)
            # what is asked of the context is asked here
            yield replace(batch, context=None)

    tasks = _tasks(cluster, matcher, stored, spec, None, "tsv")
    for number, result in enumerate(tasks.in_order(noted())):
        batch = sent[number]
        assert batch is not None
        sent[number] = None
        yield replace(result, batch=batch)
