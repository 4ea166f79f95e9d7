"""``streamer match``: exact and approximate matching of read files against a dictionary."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from streamer.cli.choices import (
    READS,
    SENT_BASES,
    SENT_READS,
    DeviceOption,
    FormatChoice,
    FormatOption,
    OutputOption,
    QuietOption,
    ThreadsOption,
    say,
)
from streamer.cli.file_checks import check_files
from streamer.errors import DataError, UsageError
from streamer.matching.spec import DEFAULT_CHUNK, Kernel, MatchSpec, Mode, Semantics
from trie.strands import Strands

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from streamer.matching.matcher import Matcher
    from streamer.sequences.read_batch import ReadBatch

ReportName = Literal["windows", "intervals", "reads", "all", "best"]

NEAR_REPORTS = ("all", "best")

_FAULTS = {
    "kernel": "--kernel {kernel} is not for {what}: {names}",
    "distance": "--distance {distance} must be less than k (-k {k})",
    "strands": "--strands {strands} has no meaning with a distance: forward or both",
    "device": "--kernel {kernel} runs on CUDA, not with --device {device}",
    "chunk": "--chunk {chunk} is shorter than a k-mer (-k {k})",
}
"""For users, what ``MatchSpec.faults`` names."""


def match(
    reads: Annotated[list[str], typer.Argument(metavar="READS", help=READS)],
    k: Annotated[int, typer.Option("-k", min=1, max=31, help="Length of a k-mer, 1 to 31.")],
    dictionary: Annotated[
        list[str] | None,
        typer.Option(
            "--dictionary",
            "-d",
            metavar="FASTX",
            help="Targets, or a file that --save wrote; may be given again.",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0, help="Start from the k-mers in this number of first bases of the reads."
        ),
    ] = None,
    report: Annotated[
        ReportName | None,
        typer.Option(
            help="One row for each of these; with a distance all ends or the best of each cluster. "
            "Default: intervals, with a distance all."
        ),
    ] = None,
    mode: Annotated[
        Mode | None, typer.Option(help="Default: frozen with --dictionary, grow with --seed.")
    ] = None,
    strands: Annotated[
        Strands | None,
        typer.Option(
            help="Which orientations are one k-mer. Default: canonical; with a distance both, "
            "for ltb forward."
        ),
    ] = None,
    max_kmers: Annotated[
        int,
        typer.Option(
            min=0,
            help="Stop adding k-mers once the dictionary holds this many, after the batch (as "
            "send makes them) that reached it; 0: never.",
        ),
    ] = 0,
    distance: Annotated[
        int | None,
        typer.Option(
            "--distance",
            "-D",
            min=0,
            max=4,
            help="Find k-mers within this number of edits, less than k.",
        ),
    ] = None,
    semantics: Annotated[
        Semantics | None,
        typer.Option(
            help="What a distance means: levenshtein (default) or ltb, the automaton of the "
            "Levenshtein Tree Bitmap."
        ),
    ] = None,
    kernel: Annotated[
        Kernel,
        typer.Option(
            help="index, or walk over the Tree Bitmap; on CUDA shuffle, naive, buckets too. "
            "With a distance: pieces or lanes; ltb: sliced, active, on CUDA ltb-... Equal results."
        ),
    ] = "auto",
    chunk: Annotated[
        int, typer.Option(min=1, help="Bases in a chunk of the stream, at least k.")
    ] = DEFAULT_CHUNK,
    device: DeviceOption = "auto",
    streams: Annotated[
        int, typer.Option(min=1, max=8, help="CUDA streams; 1 is the serial loop.")
    ] = 2,
    threads: ThreadsOption = 0,
    format_: FormatOption = "tsv",
    output: OutputOption = None,
    save: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write the dictionary as it is at the end.")
    ] = None,
    quiet: QuietOption = False,
) -> None:
    """Match reads against a dictionary of k-mers, exactly or within a distance.

    The dictionary is every window of the FASTX records (--dictionary), or grows from the
    reads themselves (--seed). Rows go to standard output.
    """
    if (dictionary is None) == (seed is None):
        message = "give either --dictionary FASTX or --seed N"
        raise UsageError(message)
    near = _within(report, distance, semantics)
    spec = MatchSpec.of(
        k=k,
        sources=tuple(dictionary or ()),
        seed_bases=seed,
        mode=mode,
        max_kmers=max_kmers,
        strands=strands,
        exact=not near,
        distance=(distance or 0) if near else None,
        semantics=semantics,
        kernel=kernel,
        chunk=chunk,
        threads=threads,
        device=device,
        streams=streams,
    )
    if max_kmers and not spec.changes:
        message = "--max-kmers needs a dictionary that grows: --mode grow or --seed"
        raise UsageError(message)
    for fault in spec.faults():
        what = f"--semantics {spec.semantics}" if near else "exact matching"
        values = {name: getattr(spec, name) for name in spec.__slots__}
        raise UsageError(_FAULTS[fault].format(what=what, names=", ".join(spec.kernels), **values))
    if [*reads, *spec.sources].count("-") > 1:
        message = "standard input (-) can be read only once"
        raise UsageError(message)
    check_files([*reads, *spec.sources], output, {"--save": save})
    if save is not None:
        from streamer.output.output_file import compression_of
        from trie.snapshots.snapshot_file import check_place

        if compression_of(save) is not None:
            message = f"--save {save}: a dictionary is not compressed; leave out the suffix"
            raise UsageError(message)
        check_place(save)
    ltb = near and spec.semantics == "ltb"
    name = "ltb" if ltb else report or ("all" if near else "intervals")
    _match_files(reads, spec, name, format_, output, save, quiet)


def _within(report: ReportName | None, distance: int | None, semantics: Semantics | None) -> bool:
    """Whether k-mers within a distance are asked for; UsageError for what does not go together."""
    if report is not None and report not in NEAR_REPORTS:
        if distance or semantics == "ltb":
            message = f"--report {report} is of exact matching; with a distance: all, best"
            raise UsageError(message)
        return False
    near = distance is not None or semantics is not None
    if report is not None and not near:
        message = f"--report {report} needs --distance"
        raise UsageError(message)
    if report == "best" and semantics == "ltb":
        message = "--report best is not for --semantics ltb, whose ends have several distances"
        raise UsageError(message)
    return near


def _match_files(
    reads: list[str],
    spec: MatchSpec,
    name: str,
    format_: FormatChoice,
    output: str | None,
    save: str | None,
    quiet: bool,
) -> None:
    from contextlib import closing
    from dataclasses import replace

    from streamer.cli.progress import progress
    from streamer.devices import choose_device
    from streamer.dictionary.saved_dictionary import StoredKmers, save_dictionary
    from streamer.matching.matcher import Matcher, load_dictionary
    from streamer.matching.report_tables import ReportTables
    from streamer.matching.reports import REPORTS
    from streamer.output.rows import RowWriter
    from streamer.sequences.files import BATCH_BASES, BATCH_READS, read_batches, size_of_files
    from streamer.sequences.prefetch import prefetched
    from trie.cpu.compiling import compile_notice

    report = REPORTS[name]
    notice = None if quiet else say
    on_fallback = say if spec.device == "auto" else None
    spec = replace(spec, device=choose_device(spec.device, kernel=spec.cuda_kernel, report=notice))
    # with both strands a saved file keeps how the k-mers stood in the records
    keeps = save is not None and spec.strands == "both"
    with compile_notice(quiet=quiet):
        stored = load_dictionary(spec, as_stored=keeps, on_notice=notice)
        matcher = Matcher(stored, spec, on_fallback=on_fallback)
        targets = (stored if spec.near else matcher.dictionary).targets
        tables = ReportTables(targets, spec.k)
        grown = StoredKmers(spec.k, needed=keeps and spec.changes)
        with closing(matcher):
            with (
                RowWriter(output, format_, report.columns) as writer,
                progress("matching", size_of_files(reads), quiet=quiet) as show,
            ):
                bases, most = max(spec.chunk, BATCH_BASES), BATCH_READS
                if spec.max_kmers:
                    # growth ends with a batch: with the one that it ends with in a daemon
                    bases, most = SENT_BASES, SENT_READS
                batches = read_batches(reads, batch_bases=bases, batch_reads=most, on_bytes=show)
                if spec.near:
                    batches = _seeds_together(batches, spec.seed_bases)
                full = False
                for batch in prefetched(batches):
                    if matcher.limited and not full:
                        full = True
                        _say_limited(matcher, batch, notice)
                    result = matcher.match(batch, want_depths=report.depths, want_nodes=False)
                    grown.add(result)
                    for columns in report.rows(result, targets):
                        writer.write(tables.table(columns, batch.names))
            # the rows are in their place now, and stay if this fails
            if save is not None:
                tree = matcher.latest_snapshot().tree
                save_dictionary(save, stored, grown.codes(), tree, spec.strands)


def _say_limited(matcher: Matcher, batch: ReadBatch, notice: Callable[[str], None] | None) -> None:
    """Say that the k-mers of this batch and of all behind it are not added."""
    if notice is not None:
        first = f" (read {batch.names[0]})" if len(batch) else ""
        notice(
            f"the dictionary holds {matcher.kmers:,} k-mers, --max-kmers is "
            f"{matcher.spec.max_kmers:,}: none are added from here on{first}"
        )


def _seeds_together(batches: Iterable[ReadBatch], seed: int) -> Iterator[ReadBatch]:
    """The batches, of which the first holds all seeds: its reads are matched against every one."""
    from streamer.sequences.read_batch import ReadBatch, joined_batches

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
        joined = joined_batches(first)
        names = [name for batch in first for name in batch.names]
        yield ReadBatch(names, joined.offsets, joined.bases)
    if fault is not None:
        raise fault
    yield from rest
