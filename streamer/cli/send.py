"""``streamer send``: reads from files to a running daemon."""

from __future__ import annotations

from typing import Annotated

import typer

from streamer.cli import daemon_options
from streamer.cli.choices import READS, QuietOption, say
from streamer.cli.daemon_options import ConfigOption


def send(
    reads: Annotated[list[str], typer.Argument(metavar="READS", help=READS)],
    to: Annotated[str | None, typer.Option("--to", help="Ingest endpoint of the daemon.")] = None,
    config: ConfigOption = None,
    name: Annotated[
        str | None, typer.Option("--name", help="Name of this producer in the results.")
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=0.1, help="Give up after this many seconds without progress.")
    ] = 300.0,
    batch_bases: Annotated[int, typer.Option(min=1, help="Bases in a batch.")] = 1_000_000,
    batch_reads: Annotated[int, typer.Option(min=1, help="Reads in a batch, at most.")] = 4_000,
    quiet: QuietOption = False,
) -> None:
    """Send reads to a running daemon; ends once every batch is acknowledged.

    If it ends before, it says which reads are acknowledged, and the file and record to go on from.
    """
    import time

    from streamer.cli.progress import progress
    from streamer.cli.send_files import Files, send_all
    from streamer.client.producer import Producer
    from streamer.sequences.files import size_of_files

    endpoint = daemon_options.endpoint_of("ingest", to, config)
    answer_seconds = min(daemon_options.ANSWER_SECONDS, timeout)
    began = time.monotonic()
    with Producer(endpoint, name=name, answer_seconds=answer_seconds) as producer:
        producer.connect(timeout=timeout)
        with progress("sending", size_of_files(reads), quiet=quiet) as show:
            files = Files(reads, batch_bases=batch_bases, batch_reads=batch_reads, on_bytes=show)
            send_all(producer, files, timeout)
    if not quiet:
        seconds = time.monotonic() - began
        say(f"{files.reads:,} reads, {files.bases:,} bases acknowledged in {seconds:.1f} s")
