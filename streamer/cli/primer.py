"""``streamer primer``: substrings of alpha far from all of beta, and primers (primer paper)."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from streamer.cli import choices, cost_model
from streamer.cli.choices import check_files, say
from streamer.cli.pattern_search import read_patterns
from streamer.errors import UsageError
from streamer.output.output_file import rows_format
from trie.strands import PrimerStrands

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from streamer.batch.primer.design import Range


PrimerMethod = Literal[
    "windows", "seeds", "hook-row", "conventional", "alternative", "conventional-coarse",
    "alternative-coarse", "alternative-fine", "alternative-coarse-fine",
]  # fmt: skip

_design = partial(typer.Option, rich_help_panel="Primers")
_range_option = partial(_design, metavar="LOW-HIGH")
_file_option = partial(_design, metavar="FILE")


def primer(
    alpha: Annotated[
        str,
        typer.Argument(
            metavar="ALPHA",
            help="FASTA, FASTQ, SAM, BAM or CRAM to find primers in; - is standard input.",
        ),
    ],
    beta: Annotated[
        str, typer.Argument(metavar="BETA", help="What they must differ from, likewise.")
    ],
    k: Annotated[int, typer.Option("-k", min=1, help="Minimum differences from any part of BETA.")],
    strands: Annotated[PrimerStrands, typer.Option(help="Strands of BETA that count.")] = "forward",
    method: Annotated[PrimerMethod | None, typer.Option(help="Default: seeds. Same rows.")] = None,
    device: choices.DeviceOption = "auto",
    gpus: choices.GpusOption = 0,
    threads: choices.ThreadsOption = 0,
    cluster: choices.ClusterOption = None,
    format_: choices.RowsFormatOption = None,
    output: choices.OutputOption = None,
    header: choices.HeaderOption = "hash",
    comments: choices.CommentsOption = False,
    min_length: Annotated[int | None, _design(min=8, max=60, help="Shortest primer; 18.")] = None,
    max_length: Annotated[int | None, _design(min=8, max=60, help="Longest primer; 27.")] = None,
    gc: Annotated[str | None, _range_option(help="Percent; 30-70.")] = None,
    tm: Annotated[str | None, _range_option(help="Melting temperature, C; 55-65.")] = None,
    hairpin_tm: Annotated[float | None, _design(help="At most, C; 47.")] = None,
    dimer_tm: Annotated[
        float | None, _design(help="At most, of a primer with itself or its partner, C; 47.")
    ] = None,
    pairs: Annotated[int | None, _design(min=1, help="Pairs to choose in each record.")] = None,
    product: Annotated[
        str | None, _range_option(help="Bases between a pair's outer ends; 100-1000.")
    ] = None,
    bed: Annotated[str | None, _file_option(help="Write the rows as BED, too.")] = None,
    fasta: Annotated[
        str | None, _file_option(help="Write the sequences of the rows as FASTA.")
    ] = None,
    plot: Annotated[str | None, _file_option(help="Draw each record: .png, .svg or .pdf.")] = None,
    known: Annotated[
        str | None,
        _design(metavar="FASTA", help="Primers to place, with their differences from BETA."),
    ] = None,
    known_table: Annotated[
        str | None, _file_option(help="Write a row for each known primer.")
    ] = None,
    quiet: choices.QuietOption = False,
) -> None:
    """Find the shortest substrings of ALPHA with at least k differences from every part of BETA.

    A row for each start of each record of ALPHA that has one, against all records of BETA.

    If any property of primers is requested (length, GC, Tm, hairpins, pairs), the rows are primers
    that have it, with the defaults below for the other properties.
    """
    if known is not None and known_table is None and plot is None:
        raise UsageError("--known FASTA goes with --known-table FILE or --plot FILE")
    if known_table is not None and known is None:
        raise UsageError("--known-table FILE goes with --known FASTA")
    if known is not None and (beta == "-" or Path(beta).is_fifo()):
        raise UsageError("with --known BETA is read twice: it cannot be standard input or a pipe")
    format_ = rows_format(format_, output)
    choices.name_provenance("primer", k, [alpha, beta, known], header, comments)
    if known_table is not None and rows_format(None, known_table) != "tsv":
        raise UsageError(f"--known-table {known_table}: its rows are TSV: rename it")
    files = {"--bed": bed, "--fasta": fasta, "--plot": plot, "--known-table": known_table}
    check_files([alpha, beta, *([known] if known is not None else [])], output, files)

    from streamer.batch.asm.pattern_masks import masks_of
    from streamer.batch.plots import TRACK_FORMATS, check_plot, check_tracks
    from streamer.batch.primer import DEFAULT, METHODS, reaches
    from streamer.batch.primer.design import PrimerLimits
    from streamer.batch.primer.known import MOST_LETTERS, check_primers
    from streamer.batch.primer.problem import Alpha, piece_symbols
    from streamer.batch.primer.report import PrimerReport
    from streamer.batch.records import pieces, records
    from streamer.cli.streams import progress
    from streamer.sequences.source import shown_name, size_of_files
    from trie.cpu.threads import prefetched

    limits: dict[str, Any] = {
        "gc": _range("--gc", gc),
        "tm": _range("--tm", tm),
        "product": _range("--product", product),
        "length": _length(min_length, max_length),
        "hairpin_tm": _number("--hairpin-tm", hairpin_tm),
        "dimer_tm": _number("--dimer-tm", dimer_tm),
        "pairs": pairs,
    }
    limits = {name: value for name, value in limits.items() if value is not None}
    if pairs is not None and strands == "forward":
        raise UsageError("--pairs needs --strands both: a pair has a primer on either strand")
    if product is not None and pairs is None:
        raise UsageError("--product goes with --pairs")
    if plot is not None:
        check_plot(plot, TRACK_FORMATS, "primer")
    both = strands == "both"
    work = partial(cost_model.primer, alpha, beta, k)
    with cost_model.search_run(
        METHODS, DEFAULT, method, device, work, threads, gpus, cluster, quiet=quiet
    ) as (choice, where):
        if where is None:
            cost_model.say_where(choice, device, quiet)
            solve = partial(reaches, choice=choice, strands=strands, threads=threads)
        else:
            from streamer.cluster.batch_tasks import reaches_there

            solve = partial(reaches_there, where, choice=choice, strands=strands)
        named = list(records(alpha))
        if plot is not None:
            check_tracks(alpha, len(named))
        if known is not None:
            source, names, primers = read_patterns(
                None, known, partial(masks_of, iupac=True), quiet=quiet
            )
            check_primers(primers, names, source)
        joined = Alpha.of([record.codes for record in named])
        with progress("reading beta", size_of_files([beta]), quiet=quiet) as show:
            overlap = joined.longest() + joined.solvable(k)
            size = piece_symbols(overlap, both=both)
            host = _Host(pieces(beta, overlap, size, show))
            reach = solve(joined, prefetched(host, ahead=1), k)
        if joined.longest() and not host.has_bases and not quiet:
            say(f"warning: {shown_name(beta)} holds no bases: nothing rules a candidate out")
        report = PrimerReport(named, joined, reach, k, PrimerLimits(**limits) if limits else None)
        if known is not None:
            overlap = 2 * MOST_LETTERS + 1
            again = pieces(beta, overlap, piece_symbols(overlap, both=both))
            report.place(names, primers, again, threads=threads, both=both)
        report.write(output, format_, bed=bed, fasta=fasta, plot=plot, known_table=known_table)


class _Host:
    """The pieces of beta, and whether any of them holds a base."""

    def __init__(self, pieces: Iterator[NDArray[np.uint8]]) -> None:
        self._pieces = pieces
        self.has_bases = False

    def __iter__(self) -> Iterator[NDArray[np.uint8]]:
        from trie.codes import GAP

        for codes in self._pieces:
            self.has_bases = self.has_bases or bool((codes < GAP).any())
            yield codes


def _range(option: str, text: str | None) -> Range | None:
    from streamer.batch.primer.design import Range

    if text is None:
        return None
    low, dash, high = text.partition("-")
    try:
        limits = Range(float(low), float(high if dash else low))
    except ValueError:
        limits = None
    if limits is None or not 0 <= limits.low <= limits.high:
        raise UsageError(f"{option} {text}: give LOW-HIGH, such as 40-60")
    return limits


def _number(option: str, value: float | None) -> float | None:
    if value is not None and value != value:
        raise UsageError(f"{option} {value}: give a number")
    return value


def _length(least: int | None, most: int | None) -> Range | None:
    from streamer.batch.primer.design import PrimerLimits, Range

    if least is None and most is None:
        return None
    usual = PrimerLimits().length
    low = least if least is not None else min(usual.low, most or usual.low)
    high = most if most is not None else max(usual.high, low)
    if low > high:
        raise UsageError(f"--min-length {low:.0f} is above --max-length {high:.0f}")
    return Range(low, high)
