"""Tasks of ``match`` with a fixed dictionary: batches of reads, whose rows workers format.

Workers read small files, and regions of uncompressed FASTQ files, themselves if they find the same
file under its path: sending reads would take longer than such cheap work. For exact matching on a
CPU, the matcher and its index are stored once per node and shared by all workers there. Otherwise
each worker builds a matcher from the dictionary. Reports of totals are summed in the calling
process.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from operator import call
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer.cluster.cluster_tasks import ClusterTasks, Task, part_size
from streamer.cluster.connecting import Cluster
from streamer.dictionary.targets import Dictionary
from streamer.errors import StreamerError
from streamer.matching.matcher import StreamMatcher
from streamer.matching.reports import REPORTS
from streamer.matching.result import BatchResult
from streamer.matching.running_report import RowAnswer
from streamer.matching.spec import MatchSpec
from streamer.output.text_table import Format
from streamer.sequences.files import read_batches, work_on_batches
from streamer.sequences.raw_file import FileRegion
from streamer.sequences.read_batch import ReadBatch
from streamer.sequences.record_buffer import RecordBuffer
from streamer.sequences.side_by_side import Parsed, Worked, file_regions, parsed
from trie.cpu.stages import Stages
from trie.cpu.team import results_of
from trie.cpu.threads import prefetched

TASK_BASES = 1 << 24
"""Bases per batch: a tenth of a second of work, as reading them from a file takes as long."""

TASK_BASES_OF_MANY_ROWS = 1 << 20
TASK_BASES_NEAR = 1 << 21  # for matching within a distance
LEAST_BASES = 1 << 18
TASK_READS = 1_000_000
TEXT_OF_A_BASE = 2
"""Approximate bytes of FASTQ."""


class FilePart(NamedTuple):
    """A byte range of an uncompressed FASTQ file. version: its size and modification time in ns."""

    path: str
    version: tuple[int, int]
    first: int
    stop: int


class SmallFile(NamedTuple):
    """A file of any format. version: as of a part. bases: per batch, approximately."""

    path: str
    version: tuple[int, int] | None
    bases: int


def _version(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_size, status.st_mtime_ns


def _version_of(path: str) -> tuple[int, int] | None:
    try:
        with open(path, "rb") as file:
            return _version(file.fileno())
    except OSError:
        return None


@dataclass
class MatchTask(Task):
    """Matches a batch, a small file or a part of a file.

    matcher: ready-made, or else dictionary and spec. report: of rows, None for results.
    """

    matcher: StreamMatcher | None
    dictionary: Dictionary | None
    spec: MatchSpec
    report: str | None
    format_: Format

    def prepare(self) -> None:
        """Make the matcher of this process."""
        matcher = self.matcher
        if matcher is None:
            assert self.dictionary is not None
            matcher = StreamMatcher(self.dictionary, self.spec)
        self._matcher = matcher
        self._answer: RowAnswer | None = None
        if self.report is not None:
            near = matcher.spec.near
            targets = (matcher.stored if near else matcher.dictionary).targets
            self._answer = RowAnswer(REPORTS[self.report], targets, matcher.spec.k)

    def run(
        self, part: ReadBatch | FilePart | SmallFile
    ) -> NDArray[np.uint8] | BatchResult | list[Any] | tuple[list[Worked[Any]], int, int] | None:
        """Return what is found in a batch, in all batches of a file, or as in ``Parsed``.

        None if a file is missing or has any fault.
        """
        if isinstance(part, ReadBatch):
            return self._run(part)
        if isinstance(part, SmallFile):
            return self._run_file(part)
        try:
            with open(part.path, "rb") as file:
                if _version(file.fileno()) != part.version:
                    return None
                region = FileRegion(file.fileno(), part.first, part.stop)
                buffer = RecordBuffer(part.path, part.stop - part.first, TASK_READS)
                done = parsed(region, buffer, lambda piece: self._run(piece.reads), Stages())
        except OSError:
            return None
        return None if done.worked is None else (done.worked, done.lines, done.plus)

    def _run(self, batch: ReadBatch) -> NDArray[np.uint8] | BatchResult:
        """Return lines of rows; or the result without the reads, which the caller has."""
        matcher, answer = self._matcher, self._answer
        depths = answer is not None and answer.depths
        (result,) = matcher.match([batch], depths=depths, in_stream=not matcher.side_by_side)
        if answer is None:
            nothing = ReadBatch([], np.zeros(1, np.int64), np.zeros(0, np.uint8))
            return replace(result, batch=nothing)
        tables = answer.after(result)
        lines = [data for table in tables for data in table.formatted(self.format_)]
        return np.frombuffer(b"".join(lines), dtype=np.uint8)

    def _run_file(self, file: SmallFile) -> list[Any] | None:
        if file.version is None or _version_of(file.path) != file.version:
            return None
        try:
            batches = read_batches([file.path], batch_bases=file.bases, batch_reads=TASK_READS)
            return [self._run(some) for some in batches]
        except StreamerError:
            return None


class _ByWorkers:
    """Makes tasks of small files and of file regions. bases: in a region, approximately."""

    def __init__(self, tasks: ClusterTasks, bases: int, readers: int) -> None:
        self.readers = readers
        self._tasks = tasks
        self._bases = bases

    def whole(self, paths: list[str]) -> Generator[list[Any] | None]:
        """Implement ``RemoteReaders.whole``."""
        files = (os.path.abspath(path) for path in paths)
        yield from self._tasks.in_order(
            SmallFile(path, _version_of(path), self._bases) for path in files
        )

    def parsed(self, path: str, file: FileRegion) -> Generator[Parsed[Any]]:
        """Implement ``RemoteReaders.parsed``."""
        path, version = os.path.abspath(path), _version(file.descriptor)
        parts = (
            (region, FilePart(path, version, region.first, region.stop))
            for region in file_regions(file, TEXT_OF_A_BASE * self._bases)
        )
        for region, result in self._tasks.paired(parts):
            worked, lines, plus = result or (None, 0, 0)
            yield Parsed(region, worked, lines, plus=plus)


def task_bases(spec: MatchSpec, bases: int | None, workers: int, *, depths: bool) -> int:
    """Return the bases per task; ``bases``: the approximate total."""
    usual = TASK_BASES_OF_MANY_ROWS if depths else TASK_BASES
    if spec.near:
        usual = TASK_BASES_NEAR
    return part_size(usual, min(LEAST_BASES, usual), bases, workers)


def _tasks(
    cluster: Cluster, matcher: StreamMatcher, stored: Dictionary, spec: MatchSpec,
    report: str | None, format_: Format,
) -> ClusterTasks:  # fmt: skip
    spec = replace(spec, threads=1)
    alone = matcher.side_by_side and spec.device == "cpu" and not spec.near
    task = MatchTask(matcher if alone else None, None if alone else stored, spec, report, format_)
    return ClusterTasks(cluster, task, gpu=spec.device == "cuda")


def match_lines(
    cluster: Cluster, matcher: StreamMatcher, stored: Dictionary, spec: MatchSpec, report: str,
    format_: Format, paths: Iterable[str], bases: int,
    on_bytes: Callable[[int], None] | None = None,
) -> Iterator[NDArray[np.uint8]]:  # fmt: skip
    """Yield the formatted rows of a report of files, in order.

    matcher: of this process. spec: of the workers' matchers. bases: approximate bases per task.
    """
    tasks = _tasks(cluster, matcher, stored, spec, report, format_)
    # the rows of a file take too much memory if there is one for each window or hit
    readers = 0 if REPORTS[report].depths or spec.near else tasks.workers
    batches = work_on_batches(
        paths, lambda batch: batch, batch_bases=bases, batch_reads=TASK_READS, on_bytes=on_bytes,
        remote_readers=_ByWorkers(tasks, bases, readers),
    )  # fmt: skip
    return results_of(batches, lambda some: tasks.in_order(prefetched(map(call, some))))


def match_results(
    cluster: Cluster, matcher: StreamMatcher, stored: Dictionary, spec: MatchSpec,
    batches: Iterable[ReadBatch],
) -> Iterator[BatchResult]:  # fmt: skip
    """Yield the results of batches, in order."""
    tasks = _tasks(cluster, matcher, stored, spec, None, "tsv")
    # the context is only used in this process
    parts = ((batch, replace(batch, context=None)) for batch in batches)
    for batch, result in tasks.paired(parts):
        yield replace(result, batch=batch)
