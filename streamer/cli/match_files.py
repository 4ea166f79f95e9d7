"""``streamer match`` once its options are checked: files in, rows out, here or on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from streamer.cli import cost_model
from streamer.cli.choices import SENT_BASES, SENT_READS, FormatChoice, say
from streamer.cli.profile import profiled
from streamer.cli.streams import progress
from streamer.device_choice import choose_device, stream_cards
from streamer.dictionary.targets import Dictionary
from streamer.errors import DataError, StreamerError
from streamer.matching import running_report
from streamer.matching.matcher import StreamMatcher, load_dictionary
from streamer.matching.reports import REPORTS, Assignment
from streamer.matching.result import BatchResult
from streamer.matching.spec import Device, MatchSpec
from streamer.output.output_file import RowsFormat
from streamer.output.rows import RowWriter, open_rows
from streamer.output.text_table import Rows
from streamer.sequences.files import BATCH_BASES, BATCH_READS, read_batches, work_on_batches
from streamer.sequences.read_batch import ReadBatch, joined_batches
from streamer.sequences.source import size_of_files
from trie.cpu.compiling import compile_notice
from trie.cpu.forks import CAN_FORK
from trie.cpu.team import Team
from trie.cpu.threads import prefetched, usable_cores
from trie.windows import codes_at, window_codes

if TYPE_CHECKING:
    from streamer.matching.panel import Panel
    from streamer.sequences.sample_sheet import SampleSheet

BATCHES_A_GPU = 2
"""Bases that are matched together for each of several GPUs."""

BASES_OF_MANY_ROWS = 1 << 18
"""Bases of a batch with up to a row of 30 bytes a base; several batches are in memory."""

Lines = NDArray[np.uint8]
"""Formatted rows."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The requested report by name, with the options of target reports."""

    report: str
    rule: Assignment
    bins: int
    by: Literal["barcode", "group"] | None
    sheet: SampleSheet | None = None
    panel: Panel | None = None

    def targets_of(self, stored: Dictionary) -> Dictionary:
        """The dictionary whose targets have rows; StreamerError if it lacks groups."""
        return stored.by_group() if self.by == "group" else stored

    def answer(self, matcher: StreamMatcher) -> running_report.Answer:
        """The answer, which makes rows; StreamerError if the dictionary lacks the data for them."""
        spec, stored = matcher.spec, matcher.stored
        if self.report == "targets":
            if self.panel is not None:
                self.panel.check(matcher.dictionary)
            return running_report.TargetAnswer(matcher, self.rule, self.by, self.sheet, self.panel)
        if self.report == "coverage":
            return running_report.CoverageAnswer(
                matcher, self.bins, by_barcode=self.by == "barcode", sheet=self.sheet
            )
        if self.report == "novelty":
            return running_report.NoveltyAnswer()
        targets = (stored if spec.near else matcher.dictionary).targets
        return running_report.RowAnswer(REPORTS[self.report], targets, spec.k)


def match_files(
    reads: list[str],
    spec: MatchSpec,
    asked: Asked,
    format_: RowsFormat,
    output: str | None,
    save: str | None,
    *,
    quiet: bool,
    profile: bool,
    gpus: int = 0,
) -> None:
    """Match the reads of files; rows go to ``output``, the dictionary at the end to ``save``."""
    notice = None if quiet else say
    on_fallback = say if spec.device == "auto" else None
    device = choose_device(
        spec.device, kernel=spec.cuda_kernel, report=notice,
        cost=partial(cost_model.matching, reads, spec), threads=spec.threads,
        gpus=1 if spec.changes else gpus,
    )  # fmt: skip
    if device == "cuda":
        spec = replace(spec, cards=stream_cards(gpus, changes=spec.changes, report=notice))
    spec = replace(spec, device=device)
    # with both strands, a file of a grown dictionary stores how k-mers stood in the reads
    keeps = save is not None and spec.strands == "both"
    with compile_notice(quiet=quiet):
        with Team(spec.threads or usable_cores()) as team:
            stored = load_dictionary(spec, as_stored=keeps, on_notice=notice, team=team)
            matcher = StreamMatcher(asked.targets_of(stored), spec, on_fallback=on_fallback)
        grown = StoredKmers(spec, needed=save is not None)
        with closing(matcher):
            answer = asked.answer(matcher)
            if answer.depths and matcher.depths_refused:
                raise StreamerError(matcher.depths_refused)
            with (
                open_rows(output, format_, answer.columns) as writer,
                progress("matching", size_of_files(reads), quiet=quiet) as show,
                profiled(profile, spec.threads, reads) as team,
            ):
                bases, most = max(spec.chunk, BATCH_BASES), BATCH_READS
                if matcher.side_by_side and (answer.depths or spec.near):
                    bases = BASES_OF_MANY_ROWS
                if matcher.device == "cuda" and len(matcher.spec.cards) > 1:
                    # every GPU takes some of each batch
                    bases, most = (
                        BATCHES_A_GPU * len(matcher.spec.cards) * n for n in (bases, most)
                    )
                if spec.max_kmers:
                    # growth ends with a batch: the same one as in a daemon
                    bases, most = SENT_BASES, SENT_READS
                run = _Run(matcher, answer, writer, team, grown, notice)
                options: dict[str, Any] = {
                    "batch_bases": bases, "batch_reads": most, "on_bytes": show,
                    "context": asked.by == "barcode", "team": team,
                }  # fmt: skip
                parts: Iterator[Iterable[Lines]]
                rows = isinstance(answer, running_report.RowAnswer)
                # Arrow has threads, which a forked process lacks
                forks = CAN_FORK and isinstance(writer, RowWriter)
                if matcher.side_by_side and not answer.ordered:
                    works = (
                        # the rows of all windows of a region would be too many
                        (partial(run.work, batch) for batch in read_batches(reads, **options))
                        if answer.depths or (spec.near and not forks)
                        else work_on_batches(
                            reads, run.work, forks=rows and forks, small=not rows, **options
                        )
                    )
                    parts = team.results(works, pulls="parse", works="match", takes="write")
                else:
                    # growth depends on batches, and several GPUs share each batch
                    full = spec.changes or len(matcher.spec.cards) > 1
                    batches: Iterator[ReadBatch] = read_batches(reads, full=full, **options)
                    if spec.near:
                        batches = _seeds_together(batches, spec.seed_bases)
                    parts = run.in_turn(batches)
                for lines in parts:
                    with team.stages.spent("write"):
                        for some in lines:
                            writer.put(some.data)
                            team.stages.count("write", some.size)
                for table in answer.last():
                    writer.write(table)
            # the rows are in place now, and stay even if this fails
            if save is not None:
                stored.save(save, spec.strands, grown.codes())


@dataclass(frozen=True, slots=True)
class _Run:
    """Batches in, the lines of their rows out, in order."""

    matcher: StreamMatcher
    answer: running_report.Answer
    writer: Rows
    team: Team
    grown: StoredKmers
    notice: Callable[[str], None] | None

    def work(self, batch: ReadBatch) -> Iterable[Lines]:
        """Match and format a batch; each thread does this for its own batch."""
        with self.team.stages.spent("match"):
            (result,) = self.matcher.match([batch], depths=self.answer.depths, in_stream=False)
            return self._lines(result)

    def in_turn(self, batches: Iterable[ReadBatch]) -> Iterator[Iterable[Lines]]:
        """Match one batch after the other, each with all threads."""
        parsed = self.team.line(batches, lambda batch: batch, 2, pulls="parse")
        if self.answer.ordered:
            # done by the consumer, in order: threads of a team may finish a later result first
            pulled = map(self._lines, self._matched(parsed))
            return self.team.line(pulled, list, 2, pulls="match", takes="write")
        # format many rows in parts
        lines = self._some_lines if self.answer.depths else self._lines
        return self.team.line(
            self._matched(parsed), lines, 2, pulls="match", works="format", takes="write"
        )

    def _matched(self, batches: Iterable[ReadBatch]) -> Iterator[BatchResult]:
        full = False
        for batch in batches:
            if self.matcher.limited and not full:
                full = True
                self._say_limited(batch)
            (result,) = self.matcher.match([batch], depths=self.answer.depths)
            self.grown.add(result)
            yield result

    def _say_limited(self, batch: ReadBatch) -> None:
        """Report that the k-mers of this batch and all later ones are not added."""
        if self.notice is not None:
            first = f" (read {batch.names[0]})" if len(batch) else ""
            self.notice(
                f"the dictionary holds {self.matcher.kmers:,} k-mers, --max-kmers is "
                f"{self.matcher.spec.max_kmers:,}: none are added from here on{first}"
            )

    def _some_lines(self, result: BatchResult) -> Iterator[Lines]:
        for lines in self.writer.formatted(self.answer.after(result)):
            yield np.frombuffer(lines, np.uint8)

    def _lines(self, result: BatchResult) -> list[Lines]:
        with self.team.stages.spent("format"):
            return list(self._some_lines(result))


def _seeds_together(batches: Iterable[ReadBatch], seed: int) -> Iterator[ReadBatch]:
    """The batches, the first with all seeds, so that its reads are matched against all of them."""
    rest = iter(batches)
    first: list[ReadBatch] = []
    fault = None
    bases = 0
    try:
        while bases < seed and (batch := next(rest, None)) is not None:
            first.append(batch)
            bases += batch.bases.size
    except DataError as error:  # raised after the reads before it
        fault = error
    if first:
        joined = joined_batches(first)
        names = [name for batch in first for name in batch.names]
        yield ReadBatch(names, joined.offsets, joined.bases)
    if fault is not None:
        raise fault
    yield from rest


def match_on_cluster(
    address: str,
    reads: list[str],
    spec: MatchSpec,
    asked: Asked,
    format_: FormatChoice,
    output: str | None,
    save: str | None,
    *,
    quiet: bool,
) -> None:
    """Do ``match_files`` on a cluster; the dictionary is loaded here and put on every node."""
    from streamer.cluster.connecting import connected
    from streamer.cluster.match_tasks import TASK_READS, match_lines, match_results, task_bases

    notice = None if quiet else say
    with connected(address, spec.threads) as cluster, compile_notice(quiet=quiet):
        device: Device = "cuda" if spec.device == "cuda" or spec.cuda_kernel else "cpu"
        if device == "cuda":
            cluster.check_gpu()
        elif spec.device == "auto" and cluster.gpus:
            device = "cuda"
        if not quiet:
            say(cluster.line())
        # this one has the dictionary and the totals; workers match
        here = replace(spec, device="cpu", kernel="auto" if spec.cuda_kernel else spec.kernel)
        there = replace(spec, device=device)
        as_stored = save is not None and spec.strands == "both"
        stored = load_dictionary(here, as_stored=as_stored, on_notice=notice)
        targets = asked.targets_of(stored)
        matcher = StreamMatcher(targets, here)
        with closing(matcher):
            answer = asked.answer(matcher)
            with (
                RowWriter(output, format_, answer.columns) as writer,
                progress("matching", size_of_files(reads), quiet=quiet) as show,
            ):
                bases = task_bases(
                    spec, cost_model.bases_of_files(reads), cluster.cpus, depths=answer.depths
                )
                if asked.report in REPORTS:
                    for lines in match_lines(
                        cluster, matcher, targets, there, asked.report, format_, reads, bases, show
                    ):
                        writer.put(lines.data)
                else:
                    batches = read_batches(
                        reads, batch_bases=bases,
                        batch_reads=TASK_READS, on_bytes=show, context=asked.by == "barcode",
                    )  # fmt: skip
                    for result in match_results(
                        cluster, matcher, targets, there, prefetched(batches)
                    ):
                        for table in answer.after(result):
                            writer.write(table)
                    for table in answer.last():
                        writer.write(table)
            if save is not None:
                stored.save(save, spec.strands)


class StoredKmers:
    """Collects the k-mers that a dictionary grows by, if ``needed``.

    With strands ``both`` they are taken as they stand in the reads.
    """

    def __init__(self, spec: MatchSpec, *, needed: bool) -> None:
        self._k = spec.k
        self._needed = needed
        self._as_stored = spec.strands == "both"
        self._parts: list[NDArray[np.uint64]] = []

    def add(self, result: BatchResult) -> None:
        """Add the new k-mers of the next batch."""
        if not self._needed:
            return
        if not self._as_stored:
            self._parts.append(result.new_kmers)
            return
        batch = result.batch
        seeds = result.seed_bases
        if seeds:
            # both orientations of a seed count as stored if both occur
            offsets = np.minimum(batch.offsets, seeds)
            codes = window_codes(batch.bases[:seeds], offsets, self._k, canonical=False)[0]
            self._parts.append(np.unique(codes))
        if result.new_starts.size > result.seeded:
            starts = result.new_starts[result.seeded :]
            self._parts.append(codes_at(batch.bases, starts, self._k))

    def codes(self) -> NDArray[np.uint64]:
        """Return all of them, uint64, unordered; some may occur twice."""
        return np.concatenate(self._parts) if self._parts else np.zeros(0, dtype=np.uint64)
