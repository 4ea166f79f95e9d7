"""Options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class KernelChoice(StrEnum):
    """How windows are looked up, and with a distance how k-mers near by are found."""

    AUTO = "auto"
    INDEX = "index"
    WALK = "walk"
    SHUFFLE = "shuffle"
    NAIVE = "naive"
    BUCKETS = "buckets"
    LANES = "lanes"
    PIECES = "pieces"
    SLICED = "sliced"
    ACTIVE = "active"
    LTB_NAIVE = "ltb-naive"
    LTB_EFFICIENT = "ltb-efficient"
    LTB_QUEUE = "ltb-queue"


class DeviceChoice(StrEnum):
    """Where to match."""

    AUTO = "auto"
    CPU = "cpu"
    CUDA = "cuda"


class FormatChoice(StrEnum):
    """The form of rows."""

    TSV = "tsv"
    JSONL = "jsonl"


DeviceOption = Annotated[DeviceChoice, typer.Option("--device", help="Where to run.")]
ThreadsOption = Annotated[
    int, typer.Option("--threads", min=0, help="CPU threads; 0 is every core.")
]
FormatOption = Annotated[FormatChoice, typer.Option("--format", help="Form of the rows.")]
OutputOption = Annotated[
    str | None,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        help="Write rows there once they are complete; .gz, .bz2, .xz, .zst: compressed.",
    ),
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Only errors on standard error.")]


def say(line: str) -> None:
    """Write one line of the program's own to standard error."""
    typer.echo(f"streamer: {line}", err=True)
