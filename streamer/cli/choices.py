"""Options, arguments and messages that several commands share."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal

import typer

from streamer.errors import printable
from streamer.matching.spec import Device
from streamer.output.formats import RowsFormat

FormatChoice = Literal["tsv", "jsonl"]

SENT_BASES, SENT_READS = 4_000_000, 32_000
"""The most bases of a batch that ``send`` makes, except for its last read."""

READS = "FASTA, FASTQ, SAM, BAM or CRAM, plain or compressed; - is standard input."

dictionary_option = partial(typer.Option, "--dictionary", "-d", metavar="FASTX")

DeviceOption = Annotated[Device, typer.Option("--device", help="Where to run.")]
GpusOption = Annotated[
    int, typer.Option("--gpus", min=0, max=64, help="GPUs to use at most; 0 is all.")
]
ThreadsOption = Annotated[
    int,
    typer.Option(
        "--threads",
        min=0,
        help="CPU threads; 0 is every core. More than one per core (or 8) are not started.",
    ),
]
ClusterOption = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="local|ADDRESS",
        help="Run on Ray: a cluster on this machine, or the one at HOST:PORT. Same rows.",
    ),
]
ProfileOption = Annotated[
    bool, typer.Option("--profile", help="Show on standard error where the time went.")
]
FormatOption = Annotated[FormatChoice, typer.Option("--format", help="Format of the rows.")]


RowsFormatOption = Annotated[
    RowsFormat | None,
    typer.Option(
        "--format", help="Format of the rows. Default: by the suffix of FILE (-o), else tsv."
    ),
]
OutputOption = Annotated[
    str | None,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        help="Write rows there once they are complete; .gz, .bgz, .bz2, .xz, .zst: compressed.",
    ),
]

QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Only errors on standard error.")]


def say(line: str) -> None:
    """Write a line of the program to standard error, with its control characters escaped."""
    typer.echo(f"streamer: {printable(line)}", err=True)


def say_error(line: str) -> None:
    """Write an error as one line to standard error."""
    say("error: " + " ".join(line.split()))
