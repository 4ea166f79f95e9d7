"""``streamer run``, ``validate``, ``send`` and ``status``: the daemon and what talks to it."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator


ConfigFile = Annotated[
    str | None, typer.Option("--config", "-c", help="Configuration (TOML); without it, defaults.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="TABLE.KEY=VALUE", help="Override a setting; may be repeated."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Only errors on standard error.")]


_ANSWER_SECONDS = 5.0


class StatusFormat(StrEnum):
    """How ``status`` answers."""

    TABLE = "table"
    TSV = "tsv"
    JSONL = "jsonl"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("run")(run)
    app.command("validate")(validate)
    app.command("send")(send)
    app.command("status")(status)


def run(config: ConfigFile = None, settings: Settings = None) -> None:
    """Run the daemon until SIGINT or SIGTERM, which drain it; a second signal ends it at once."""
    from streamer.daemon import logs
    from streamer.errors import ReportedError, StreamerError

    # what ends the daemon is reported to a stream that may be stuck, too
    with logs.unfailing():
        try:
            _serve(config, settings)
        except StreamerError as error:
            for line in error.lines():
                print(f"streamer: error: {' '.join(line.split())}", file=sys.stderr)
            raise ReportedError(error) from error


def _serve(config: str | None, settings: list[str] | None) -> None:
    from streamer.daemon.config import load

    loaded = load(config, settings or ())
    from streamer import daemon
    from streamer.daemon import logs
    from streamer.errors import ReportedError, StreamerError

    for_people = logs.configure(loaded.log.level, loaded.log.format)
    try:
        daemon.run(loaded)
    except StreamerError as error:
        if for_people:
            raise
        # a program that reads the log finds the error in it, too
        logs.error(str(error))
        raise ReportedError(error) from error


def validate(
    config: Annotated[str, typer.Option("--config", "-c", help="Configuration (TOML).")],
    settings: Settings = None,
) -> None:
    """Check a configuration: ok, or every fault with its key."""
    from streamer.daemon.config import load

    load(config, settings or ())
    typer.echo("ok")


def send(
    reads: Annotated[
        list[str],
        typer.Argument(
            metavar="READS",
            help="FASTA, FASTQ or unaligned BAM, plain or compressed; - is standard input.",
        ),
    ],
    to: Annotated[str | None, typer.Option("--to", help="Ingest endpoint of the daemon.")] = None,
    config: ConfigFile = None,
    name: Annotated[
        str | None, typer.Option("--name", help="Name of this producer in the results.")
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=0.1, help="Give up after so many seconds without progress.")
    ] = 300.0,
    batch_bases: Annotated[int, typer.Option(min=1, help="Bases in a batch.")] = 1_000_000,
    batch_reads: Annotated[int, typer.Option(min=1, help="Reads in a batch, at most.")] = 4_000,
    quiet: Quiet = False,
) -> None:
    """Send reads to a running daemon; ends once every batch is acknowledged.

    If it ends before, it says which reads are acknowledged, and the file and record to go on from.
    """
    import time

    from streamer.cli.progress import progress
    from streamer.cli.sending import Files, send_all
    from streamer.client.producer import Producer
    from streamer.sequences.files import size_of_files

    endpoint = endpoint_of("ingest", to, config)
    began = time.monotonic()
    with Producer(endpoint, name=name, answer_seconds=min(_ANSWER_SECONDS, timeout)) as producer:
        producer.connect(timeout=timeout)
        with progress("sending", size_of_files(reads), quiet=quiet) as show:
            files = Files(reads, batch_bases=batch_bases, batch_reads=batch_reads, on_bytes=show)
            send_all(producer, files, timeout)
    if not quiet:
        seconds = time.monotonic() - began
        typer.echo(
            f"streamer: {files.reads:,} reads, {files.bases:,} bases acknowledged "
            f"in {seconds:.1f} s",
            err=True,
        )


def status(
    at: Annotated[str | None, typer.Option("--at", help="Control endpoint of the daemon.")] = None,
    config: ConfigFile = None,
    format_: Annotated[
        StatusFormat, typer.Option("--format", help="A table for people, or rows for programs.")
    ] = StatusFormat.TABLE,
) -> None:
    """Ask a running daemon how it is, and for its totals."""
    import json

    from streamer.client.control import Control

    with Control(endpoint_of("control", at, config)) as control:
        answer = control.status()
    if format_ == StatusFormat.JSONL:
        typer.echo(json.dumps(answer))
    elif format_ == StatusFormat.TSV:
        typer.echo("#key\tvalue")
        for key, value in _flat(answer):
            typer.echo(f"{key}\t{'.' if value in (None, '') else value}")
    else:
        print_status(answer)


def _flat(answer: dict[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in answer.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, ",".join(map(str, value)) if isinstance(value, list) else value


def print_status(answer: dict[str, object]) -> None:
    """The answer of ``Control.status`` as a table for people, on standard output."""
    from rich.console import Console
    from rich.table import Table

    fields = dict(_flat(answer))
    totals = {key[len("totals.") :]: value for key, value in fields.items() if "totals." in key}
    words = {
        "state": f"{fields['state']}, up {float(str(fields['uptime_seconds'])):.0f} s",
        "dictionary": f"{fields['dictionary.kmers']:,} k-mers, k={fields['dictionary.k']}, "
        f"{fields['dictionary.mode']}, {fields['dictionary.strands']}, "
        f"{fields['dictionary.targets']:,} targets, version {fields['dictionary.version']}",
        "reads": f"{totals['reads']:,}",
        "bases": f"{totals['bases']:,}",
        "windows": f"{totals['windows']:,}",
        "windows matched": _share(totals["matches"], totals["windows"]),
        "reads on target": _share(totals["reads_on_target"], totals["reads"]),
        "new k-mers": f"{totals['new_kmers']:,}",
        "speed": f"{totals['bases_per_second']:,.0f} bases/s while there was work",
        "waiting": f"{fields['queue.batches']:,} batches, {fields['queue.bytes']:,} of "
        f"{fields['queue.limit_bytes']:,} bytes",
        "producers": f"{fields['producers.active']:,} active, {fields['producers.known']:,} known",
        "refused": f"{fields['refused']:,} batches",
        "log": f"{fields.get('log.dropped', 0):,} lines dropped",
    } | {
        name: str(fields[f"endpoints.{name}"])
        for name in ("ingest", "feed", "control")
        if f"endpoints.{name}" in fields
    }
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in words.items():
        table.add_row(name, text)
    Console(highlight=False).print(table)


def _share(part: object, whole: object) -> str:
    percent = f" ({100 * int(str(part)) / int(str(whole)):.1f} %)" if whole else ""
    return f"{part:,}{percent}"


def endpoint_of(name: str, given: str | None, config: str | None) -> str:
    """The endpoint that a client connects to: as given, or that of the configuration."""
    from streamer.errors import UsageError
    from streamer.protocol.endpoints import check_endpoint

    if given is not None:
        try:
            endpoint = check_endpoint(given)
        except ValueError as error:
            raise UsageError(str(error)) from None
    else:
        endpoint = _configured(config, name)
    if endpoint.endswith((":*", ":0")):
        problem = f"{endpoint} leaves the port open: name the one that the daemon logs"
        raise UsageError(problem)
    return endpoint


def _configured(config: str | None, name: str) -> str:
    from streamer.daemon.config import load

    loaded = load(config, check_files=False)
    endpoints = {
        "ingest": loaded.ingest.endpoint,
        "feed": loaded.feed.endpoint,
        "control": loaded.control.endpoint,
    }
    return endpoints[name]
