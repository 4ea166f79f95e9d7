"""``streamer hamming``: patterns of one length in texts, within k mismatches (PMASM paper)."""

from __future__ import annotations

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
    from streamer.batch.records import Record

ROWS_A_TABLE = 500_000
"""Rows made into text at once."""


class HammingMethod(StrEnum):
    """How it is searched."""

    BIT_SLICED = "bit-sliced"
    PIGEONHOLE = "pigeonhole"
    NAIVE = "naive"
    SHIFT_ADD = "shift-add"
    PMASM = "pmasm"
    PMASM_THREAD = "pmasm-thread"
    PMASM_BLOCK_THREAD = "pmasm-block-thread"
    PMASM_SHARED = "pmasm-shared"


def hamming(
    text: Annotated[
        str,
        typer.Argument(
            metavar="TEXT",
            help="FASTA, FASTQ or unaligned BAM, plain or compressed; - is standard input.",
        ),
    ],
    k: Annotated[
        int, typer.Option("-k", min=0, help="Most mismatches; below the patterns' length.")
    ],
    pattern: Annotated[
        list[str] | None,
        typer.Option("--pattern", metavar="SEQ", help="A pattern itself; may be given again."),
    ] = None,
    patterns: Annotated[
        str | None,
        typer.Option(
            "--patterns", metavar="FASTA", help="Patterns of one length, 1 to 256, a record each."
        ),
    ] = None,
    strands: Annotated[
        PatternStrands, typer.Option("--strands", help="Orientations of the patterns.")
    ] = "both",
    method: Annotated[
        HammingMethod | None,
        typer.Option(
            "--method",
            help="Default: bit-sliced, or pigeonhole for many patterns. pmasm-* need CUDA.",
            show_default=False,
        ),
    ] = None,
    device: DeviceOption = DeviceChoice.AUTO,
    threads: ThreadsOption = 0,
    format_: FormatOption = FormatChoice.TSV,
    output: OutputOption = None,
    quiet: QuietOption = False,
) -> None:
    """Find patterns of one length in texts within k mismatches.

    A row for every place where a pattern, or its reverse complement (strand -), stands with at
    most k substitutions. Rows go to standard output.
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

    from streamer.batch.hamming import HammingSearch, choose_method
    from streamer.batch.hits import COLUMNS
    from streamer.batch.records import records
    from streamer.cli.progress import progress
    from streamer.output.rows import RowWriter
    from streamer.sequences.files import read_pieces, shown_name, size_of_files
    from streamer.sequences.prefetch import prefetched
    from trie.cpu.compiling import compile_notice

    source = "--pattern" if patterns is None else shown_name(patterns)
    searched = _given(pattern or []) if patterns is None else list(records(patterns))
    choice = choose_method(method and method.value, device.value, say)
    with compile_notice(quiet=quiet):
        search = HammingSearch(
            searched, k, strands=strands, choice=choice, free=method is None,
            threads=threads, source=source,
        )  # fmt: skip
        if device is DeviceChoice.AUTO and not quiet:
            say(choice.line())
        names = pl.Series([one.name for one in searched], dtype=pl.String)
        with (
            RowWriter(output, format_.value, COLUMNS) as writer,
            progress("searching", size_of_files([text]), quiet=quiet) as show,
        ):
            for piece in prefetched(read_pieces(text, search.length - 1, on_bytes=show)):
                reads = piece.reads
                for hits in search.find(reads.bases, reads.offsets, before=piece.start):
                    for first in range(0, len(hits), ROWS_A_TABLE):
                        rows = hits.rows(first, first + ROWS_A_TABLE)
                        writer.write(rows.table(reads.names, names))


def _given(letters: list[str]) -> list[Record]:
    """Patterns of the command line, named by themselves."""
    from streamer.batch.records import Record
    from trie.codes import InvalidBaseError, encode, shown_byte

    given = []
    for number, sequence in enumerate(letters, start=1):
        try:
            given.append(Record(sequence, encode(sequence)))
        except InvalidBaseError as error:
            problem = f"{shown_byte(error.byte)} is not a base"
            raise DataError(
                problem, file="--pattern", record=number, position=error.position + 1
            ) from None
    return given


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("hamming")(hamming)
