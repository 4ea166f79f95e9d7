"""``streamer asm``: patterns in texts within an edit distance (WsPASM paper)."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from streamer.cli.choices import (
    DeviceChoice,
    DeviceOption,
    FormatChoice,
    FormatOption,
    OutputOption,
    QuietOption,
    ThreadsOption,
    say,
)
from streamer.cli.files import check_files, check_outputs
from streamer.errors import DataError, UsageError
from trie.strands import PatternStrands

if TYPE_CHECKING:
    from streamer.batch.asm.patterns import Masks
    from streamer.sequences.record_buffer import TextPiece

ROWS_A_TABLE = 500_000
"""Rows made into text at once."""


class AsmReport(StrEnum):
    """What a row stands for."""

    ALL = "all"
    BEST = "best"


class AsmMethod(StrEnum):
    """How it is searched."""

    BIT_PARALLEL = "bit-parallel"
    SEQUENTIAL = "sequential"
    PASM = "pasm"
    WSPASM = "wspasm"
    WSPASM_SHARED = "wspasm-shared"


def asm(
    text: Annotated[
        str,
        typer.Argument(
            metavar="TEXT",
            help="FASTA, FASTQ or unaligned BAM, plain or compressed; - is standard input.",
        ),
    ],
    k: Annotated[int, typer.Option("-k", min=0, help="Most edits; below every pattern's length.")],
    pattern: Annotated[
        list[str] | None,
        typer.Option("--pattern", metavar="SEQ", help="A pattern itself; may be given again."),
    ] = None,
    patterns: Annotated[
        str | None, typer.Option("--patterns", metavar="FASTA", help="Patterns, a record each.")
    ] = None,
    strands: Annotated[
        PatternStrands, typer.Option("--strands", help="Orientations of the patterns.")
    ] = "both",
    report: Annotated[
        AsmReport,
        typer.Option(
            "--report",
            help="all: every end within k. best: of adjacent ends the best, with start and CIGAR.",
        ),
    ] = AsmReport.ALL,
    method: Annotated[
        AsmMethod | None,
        typer.Option(
            "--method", help="Default: bit-parallel. wspasm* need CUDA.", show_default=False
        ),
    ] = None,
    iupac: Annotated[
        bool,
        typer.Option("--iupac", help="N, R, Y, ... in a pattern match their bases, else nothing."),
    ] = False,
    device: DeviceOption = DeviceChoice.AUTO,
    threads: ThreadsOption = 0,
    format_: FormatOption = FormatChoice.TSV,
    output: OutputOption = None,
    quiet: QuietOption = False,
) -> None:
    """Find patterns in texts within an edit distance.

    A row for every end where a pattern, or its reverse complement (strand -), matches with at most
    k substitutions, insertions and deletions. Rows go to standard output.
    """
    if (not pattern) == (patterns is None):
        message = "give either --pattern SEQ or --patterns FASTA"
        raise UsageError(message)
    if text == "-" and patterns == "-":
        message = "standard input (-) can be read only once"
        raise UsageError(message)
    check_files([text] if patterns is None else [text, patterns], [output])
    check_outputs(output)

    import polars as pl

    from streamer.batch.asm import DEFAULTS, METHODS, find
    from streamer.batch.asm.patterns import check_patterns, searches
    from streamer.batch.choice import choose
    from streamer.batch.hits import COLUMNS
    from streamer.cli.progress import progress
    from streamer.output.rows import RowWriter
    from streamer.sequences.files import read_pieces, shown_name, size_of_files
    from streamer.sequences.prefetch import prefetched
    from trie.cpu.compiling import compile_notice

    source = "--pattern" if patterns is None else shown_name(patterns)
    names, masks = _read_patterns(pattern or [], patterns, source, iupac)
    check_patterns(masks, names, k, source=source)
    choice = choose(METHODS, DEFAULTS, method and method.value, device.value, say)
    if device is DeviceChoice.AUTO and not quiet:
        say(choice.line())
    columns = [*COLUMNS, "cigar"] if report is AsmReport.BEST else COLUMNS
    wanted = searches(masks, k, strands)
    pattern_names = pl.Series(names, dtype=pl.String)
    text_names: list[str] = []

    def named(pieces: Iterator[TextPiece]) -> Iterator[TextPiece]:
        for piece in pieces:
            # the first name may be known from the piece before
            text_names.extend(piece.reads.names[len(text_names) - piece.first :])
            yield piece

    with (
        compile_notice(quiet=quiet),
        RowWriter(output, format_.value, columns) as writer,
        progress("searching", size_of_files([text]), quiet=quiet) as show,
    ):
        pieces = named(prefetched(read_pieces(text, wanted.reach, on_bytes=show)))
        for hits in find(pieces, wanted, choice, report=report.value, threads=threads):
            for first in range(0, len(hits), ROWS_A_TABLE):
                part = hits.rows(first, first + ROWS_A_TABLE)
                writer.write(part.table(text_names, pattern_names))


def _read_patterns(
    given: list[str], path: str | None, source: str, iupac: bool
) -> tuple[list[str], list[Masks]]:
    """Names and letters of the patterns; DataError for what is no DNA, with its place."""
    from streamer.batch.asm.patterns import masks_of
    from streamer.sequences.files import read_letters
    from trie.codes import InvalidBaseError, shown_byte

    records = ((one, one) for one in given) if path is None else read_letters(path)
    names: list[str] = []
    masks: list[Masks] = []
    for number, (name, letters) in enumerate(records, 1):
        try:
            masks.append(masks_of(letters, iupac=iupac))
        except InvalidBaseError as error:
            problem = f"{shown_byte(error.byte)} is not a base"
            raise DataError(
                problem, file=source, record=number, name=name, position=error.position + 1
            ) from None
        names.append(name)
    return names, masks


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("asm")(asm)
