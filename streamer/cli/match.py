"""``streamer match``: exact and approximate matching of read files against a dictionary."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from streamer.cli.choices import (
    DeviceChoice,
    DeviceOption,
    FormatChoice,
    FormatOption,
    KernelChoice,
    OutputOption,
    QuietOption,
    ThreadsOption,
    say,
)
from streamer.cli.file_checks import check_files
from streamer.devices import CUDA_KERNELS, KERNELS
from streamer.errors import UsageError
from trie.strands import Strands

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streamer.dictionary.targets import Dictionary
    from streamer.matching import BatchResult
    from streamer.matching.reports import Columns


class Mode(StrEnum):
    """Whether the dictionary grows."""

    FROZEN = "frozen"
    GROW = "grow"


class MatchReport(StrEnum):
    """What a row stands for."""

    WINDOWS = "windows"
    INTERVALS = "intervals"
    READS = "reads"
    ALL = "all"
    BEST = "best"


NEAR_REPORTS = (MatchReport.ALL, MatchReport.BEST)


class Semantics(StrEnum):
    """What a distance means."""

    LEVENSHTEIN = "levenshtein"
    LTB = "ltb"


def match(
    reads: Annotated[
        list[str],
        typer.Argument(
            metavar="READS",
            help="FASTA, FASTQ or unaligned BAM, plain or compressed; - is standard input.",
        ),
    ],
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
            "--seed", min=0, help="Start from the k-mers in the first so many bases of the reads."
        ),
    ] = None,
    report: Annotated[
        MatchReport | None,
        typer.Option(
            "--report",
            help="One row for each of these; with a distance all ends or the best of each cluster. "
            "Default: intervals, with a distance all.",
            show_default=False,
        ),
    ] = None,
    mode: Annotated[
        Mode | None,
        typer.Option(
            "--mode",
            help="Frozen with --dictionary and grow with --seed unless said.",
            show_default=False,
        ),
    ] = None,
    strands: Annotated[
        Strands | None,
        typer.Option(
            "--strands",
            help="Which orientations are one k-mer. Default: canonical; with a distance both, "
            "for ltb forward.",
            show_default=False,
        ),
    ] = None,
    distance: Annotated[
        int | None,
        typer.Option(
            "--distance",
            "-D",
            min=0,
            max=4,
            help="Find k-mers within so many edits, less than k.",
            show_default=False,
        ),
    ] = None,
    semantics: Annotated[
        Semantics | None,
        typer.Option(
            "--semantics",
            help="What a distance means: levenshtein (default) or ltb, the automaton of the "
            "Levenshtein Tree Bitmap.",
            show_default=False,
        ),
    ] = None,
    kernel: Annotated[
        KernelChoice,
        typer.Option(
            "--kernel",
            help="index, or walk over the Tree Bitmap; on CUDA shuffle, naive, buckets too. "
            "With a distance: pieces or lanes; ltb: sliced, active, on CUDA ltb-... Equal results.",
        ),
    ] = KernelChoice.AUTO,
    chunk: Annotated[
        int, typer.Option("--chunk", min=1, help="Bases in a chunk of the stream, at least k.")
    ] = 1_000_000,
    device: DeviceOption = DeviceChoice.AUTO,
    streams: Annotated[
        int,
        typer.Option("--streams", min=1, max=8, help="CUDA streams; 1 is the serial loop."),
    ] = 2,
    threads: ThreadsOption = 0,
    format_: FormatOption = FormatChoice.TSV,
    output: OutputOption = None,
    save: Annotated[
        str | None,
        typer.Option("--save", metavar="FILE", help="Write the dictionary as it is at the end."),
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
    if chunk < k:
        message = f"--chunk {chunk} is shorter than a k-mer (-k {k})"
        raise UsageError(message)
    near = _within(k, report, strands, distance, semantics)
    what = (semantics or Semantics.LEVENSHTEIN).value if near else "exact"
    if kernel.value not in KERNELS[what]:
        names = ", ".join(KERNELS[what])
        what = f"--semantics {what}" if near else "exact matching"
        message = f"--kernel {kernel.value} is not for {what}: {names}"
        raise UsageError(message)
    if device is DeviceChoice.CPU and kernel.value in CUDA_KERNELS:
        message = f"--kernel {kernel.value} runs on CUDA, not with --device cpu"
        raise UsageError(message)
    chosen_mode = mode or (Mode.GROW if dictionary is None else Mode.FROZEN)
    check_files([*reads, *(dictionary or [])], output, {"--save": save})
    if save is not None:
        from streamer.output.output_file import compression_of
        from trie.snapshots.snapshot_file import check_place

        if compression_of(save) is not None:
            message = f"--save {save}: a dictionary is not compressed; leave out the suffix"
            raise UsageError(message)
        check_place(save)

    from streamer.devices import choose_device
    from streamer.dictionary.targets import Dictionary
    from trie.cpu.compiling import compile_notice

    chosen_device = choose_device(device.value, quiet=quiet, kernel=kernel.value)
    if strands is None:
        forward = semantics is Semantics.LTB
        near_strands: Strands = "forward" if forward else "both"
        strands = near_strands if near else "canonical"
    with compile_notice(quiet=quiet):
        if dictionary is None:
            known = Dictionary.empty(k, "forward" if near else strands)
        else:
            # with both strands a saved file keeps how the k-mers stood in the records
            as_stored = near or (save is not None and strands == "both")
            known = Dictionary.from_files(
                dictionary,
                k,
                strands,
                as_stored=as_stored,
                on_notice=None if quiet else say,
            )
        if near:
            from streamer.cli.match_near import NearJob, match_near

            match_near(
                NearJob(
                    reads=reads,
                    stored=known,
                    strands=strands,
                    semantics=(semantics or Semantics.LEVENSHTEIN).value,
                    distance=distance or 0,
                    best=report is MatchReport.BEST,
                    mode=chosen_mode.value,
                    seed=seed or 0,
                    kernel=kernel.value,
                    chunk=chunk,
                    threads=threads,
                    device=chosen_device,
                    may_fall_back=device is DeviceChoice.AUTO,
                    streams=streams,
                    format_=format_.value,
                    output=output,
                    save=save,
                    quiet=quiet,
                )
            )
            return
        _match_files(
            reads,
            known,
            strands=strands,
            mode=chosen_mode,
            seed=seed or 0,
            report=report or MatchReport.INTERVALS,
            kernel=kernel,
            chunk=chunk,
            threads=threads,
            device=chosen_device,
            may_fall_back=device is DeviceChoice.AUTO,
            streams=streams,
            format_=format_,
            output=output,
            save=save,
            quiet=quiet,
        )


def _within(
    k: int,
    report: MatchReport | None,
    strands: Strands | None,
    distance: int | None,
    semantics: Semantics | None,
) -> bool:
    """Whether k-mers within a distance are asked for; UsageError for what does not go together."""
    asked = distance is not None or semantics is not None
    limit = distance or 0
    if limit >= k:
        message = f"--distance {limit} must be less than k (-k {k})"
        raise UsageError(message)
    if report is not None and report not in NEAR_REPORTS:
        if limit or semantics is Semantics.LTB:
            message = f"--report {report.value} is of exact matching; with a distance: all, best"
            raise UsageError(message)
        return False
    if not asked and report is not None:
        message = f"--report {report.value} needs --distance"
        raise UsageError(message)
    if report is MatchReport.BEST and semantics is Semantics.LTB:
        message = "--report best is not for --semantics ltb, whose ends have several distances"
        raise UsageError(message)
    if asked and strands == "canonical":
        message = "--strands canonical has no meaning with a distance: forward or both"
        raise UsageError(message)
    return asked


def _match_files(
    reads: list[str],
    stored: Dictionary,
    *,
    strands: Strands,
    mode: Mode,
    seed: int,
    report: MatchReport,
    kernel: KernelChoice,
    chunk: int,
    threads: int,
    device: Literal["cpu", "cuda"],
    may_fall_back: bool,
    streams: int,
    format_: FormatChoice,
    output: str | None,
    save: str | None,
    quiet: bool,
) -> None:
    from contextlib import closing

    from streamer.cli.progress import progress
    from streamer.dictionary.saved_dictionary import StoredKmers, save_dictionary
    from streamer.matching import Matcher, reports
    from streamer.matching.matcher import Kernel
    from streamer.matching.report_tables import ReportTables
    from streamer.output.rows import RowWriter
    from streamer.sequences.files import BATCH_BASES, read_batches, size_of_files
    from streamer.sequences.prefetch import prefetched

    names = {
        MatchReport.WINDOWS: reports.WINDOW_COLUMNS,
        MatchReport.INTERVALS: reports.INTERVAL_COLUMNS,
        MatchReport.READS: reports.READ_COLUMNS,
    }[report]
    known = stored.known_as(strands)
    tables = ReportTables(known.targets)
    grown = StoredKmers(
        known.k,
        seed,
        needed=save is not None and strands == "both" and (mode is Mode.GROW or seed > 0),
    )
    matcher = Matcher(
        known,
        mode=mode.value,
        seed_bases=seed,
        kernel=cast(Kernel, kernel.value),
        chunk=chunk,
        threads=threads,
        device=device,
        streams=streams,
        on_fallback=say if may_fall_back else None,
    )
    with closing(matcher):
        with (
            RowWriter(output, format_.value, names) as writer,
            progress("matching", size_of_files(reads), quiet=quiet) as show,
        ):
            batches = read_batches(reads, batch_bases=max(chunk, BATCH_BASES), on_bytes=show)
            want = report is MatchReport.WINDOWS
            for batch in prefetched(batches):
                result = matcher.match(batch, want_depths=want, want_nodes=False)
                grown.add(result)
                for columns in _pieces(report, result, known):
                    writer.write(tables.table(columns, batch.names))
        # the rows are in their place now, and stay if this fails
        if save is not None:
            tree = matcher.latest_snapshot().tree
            save_dictionary(save, stored, grown.codes(), tree, strands)


def _pieces(report: MatchReport, result: BatchResult, known: Dictionary) -> Iterable[Columns]:
    from streamer.matching import reports

    if report is MatchReport.WINDOWS:
        return reports.window_pieces(result)
    if report is MatchReport.INTERVALS:
        return [reports.intervals(result)]
    return [reports.reads(result, known.targets)]
