"""``streamer match --distance``: what lies within a distance, from read files to rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Literal

import numpy as np
import typer

from streamer.cli.progress import progress
from streamer.dictionary.saved_dictionary import StoredKmers, save_dictionary
from streamer.dictionary.targets import Dictionary
from streamer.errors import DataError
from streamer.matching import Matcher, reports
from streamer.matching.near import Approximate, ApproximateResult, Options, Semantics
from streamer.matching.report_tables import ReportTables
from streamer.output.rows import Format, RowWriter
from streamer.sequences.files import BATCH_BASES, read_batches, size_of_files
from streamer.sequences.prefetch import prefetched
from streamer.sequences.read_batch import ReadBatch, joined_batches
from trie.cpu.threads import usable_cores
from trie.strands import Strands


@dataclass(frozen=True, slots=True)
class NearJob:
    """What ``streamer match`` was asked for; names as its options. stored: k-mers as they stand."""

    reads: list[str]
    stored: Dictionary
    strands: Strands
    semantics: Semantics
    distance: int
    best: bool
    mode: Literal["frozen", "grow"]
    seed: int
    kernel: str
    chunk: int
    threads: int
    device: Literal["cpu", "cuda"]
    may_fall_back: bool
    streams: int
    format_: Format
    output: str | None
    save: str | None
    quiet: bool


def match_near(job: NearJob) -> None:
    """Write the rows of the reads."""
    automaton = job.semantics == "ltb"
    columns: tuple[str, ...] = reports.LTB_COLUMNS if automaton else reports.NEAR_COLUMNS
    tables = ReportTables(job.stored.targets, job.stored.k)
    batch_bases = max(job.chunk, BATCH_BASES)
    with ExitStack() as stack:
        match = _matcher(job, stack)
        writer = stack.enter_context(RowWriter(job.output, job.format_, columns))
        show = stack.enter_context(progress("matching", size_of_files(job.reads), quiet=job.quiet))
        batches = read_batches(job.reads, batch_bases=batch_bases, on_bytes=show)
        for batch in prefetched(_seeds_together(batches, job.seed)):
            result = match(batch)
            rows = reports.ltb(result) if automaton else reports.near(result, best=job.best)
            writer.write(tables.table(rows, batch.names))


def _seeds_together(batches: Iterable[ReadBatch], seed: int) -> Iterator[ReadBatch]:
    """The batches, of which the first holds all seeds: its reads are matched against every one."""
    rest = iter(batches)
    first: list[ReadBatch] = []
    fault = None
    bases = 0
    try:
        while bases < seed and (batch := next(rest, None)) is not None:
            first.append(batch)
            bases += batch.bases.size
    except DataError as error:  # after the reads in front of it
        fault = error
    if first:
        joined = joined_batches(first, np.zeros(0, dtype=np.uint8))
        names = [name for batch in first for name in batch.names]
        yield ReadBatch(names, joined.offsets, joined.bases)
    if fault is not None:
        raise fault
    yield from rest


def _matcher(job: NearJob, stack: ExitStack) -> Callable[[ReadBatch], ApproximateResult]:
    """What matches a batch; the dictionary is saved when the stack is left without an error."""

    def say(why: str) -> None:
        typer.echo(f"streamer: {why}", err=True)

    threads = job.threads or usable_cores()
    fallback = say if job.may_fall_back else None
    approximate = Approximate(
        job.stored,
        semantics=job.semantics,
        distance=job.distance,
        both=job.strands == "both",
        options=Options(
            method=job.kernel,
            device=job.device,
            threads=threads,
            chunk=job.chunk,
            streams=job.streams,
            on_fallback=fallback,
        ),
    )
    fixed = job.mode == "frozen" and not job.seed
    if fixed and job.save is None:
        stack.enter_context(closing(approximate))
        return approximate.match
    matcher = Matcher(
        job.stored.without_targets(job.strands),
        mode=job.mode,
        seed_bases=job.seed,
        chunk=job.chunk,
        threads=threads,
        device=job.device,
        streams=job.streams,
        on_fallback=fallback,
        approximate=approximate,
    )
    stack.enter_context(closing(matcher))
    grown = StoredKmers(
        job.stored.k,
        job.seed,
        needed=job.save is not None and not fixed and job.strands == "both",
    )
    if job.save is not None:
        path = job.save

        def save(kind: type[BaseException] | None, *_: object) -> None:
            if kind is None:
                tree = matcher.latest_snapshot().tree
                save_dictionary(path, job.stored, grown.codes(), tree, job.strands)

        stack.push(save)

    def match(batch: ReadBatch) -> ApproximateResult:
        result = matcher.match(batch)
        grown.add(result)
        assert result.near is not None
        return result.near

    return match
