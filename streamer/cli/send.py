"""``streamer send``: reads from files to a running daemon."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from streamer.cli import daemon_options
from streamer.cli.choices import (
    READS,
    SENT_BASES,
    SENT_READS,
    QuietOption,
    SettleOption,
    UntilOption,
    check_watch_options,
    say,
)
from streamer.cli.daemon_options import ConfigOption, KeysOption
from streamer.errors import UsageError
from streamer.watching import SETTLE_SECONDS

if TYPE_CHECKING:
    from streamer.watching.file_visit import BatchSizes


def send(
    reads: Annotated[list[str] | None, typer.Argument(metavar="READS", help=READS)] = None,
    watch: Annotated[
        str | None,
        typer.Option("--watch", metavar="DIR", help="Send files as a sequencer writes them there."),
    ] = None,
    settle: SettleOption = None,
    until: UntilOption = None,
    ledger: Annotated[
        str | None,
        typer.Option(
            "--ledger", metavar="FILE", help="With --watch: where to note what has been sent."
        ),
    ] = None,
    to: Annotated[str | None, typer.Option("--to", help="Ingest endpoint of the daemon.")] = None,
    config: ConfigOption = None,
    keys: KeysOption = None,
    name: Annotated[
        str | None,
        typer.Option("--name", help="Name of this producer in the results, and for --resume."),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Skip the records that are durable under this --name."),
    ] = False,
    timeout: Annotated[
        float, typer.Option(min=0.1, help="Give up after this many seconds without progress.")
    ] = 300.0,
    threads: Annotated[
        int,
        typer.Option(
            min=0,
            help="Threads that read and encode READS; 0 is a quarter of the cores; --watch has 1.",
        ),
    ] = 0,
    batch_bases: Annotated[int, typer.Option(min=1, help="Bases in a batch.")] = SENT_BASES,
    batch_reads: Annotated[
        int, typer.Option(min=1, help="Reads in a batch, at most.")
    ] = SENT_READS,
    quiet: QuietOption = False,
) -> None:
    """Send reads to a running daemon; ends once every batch is acknowledged.

    If it ends before, it says which reads are acknowledged, and the file and record to go on from.
    With a --name the daemon keeps that place, too: after any end, also a kill, the same command
    with --resume sends the records that are not durable yet. It reads the files again up to that
    place, and skips as many records of standard input. One process may use a name at a time.

    --watch sends FASTQ and BAM below a folder, as MinKNOW, dorado and bcl-convert leave them: files
    that are complete, and plain FASTQ as it grows. Each record is sent once, also over restarts,
    re-writes and copies. It ends once a file that --until names is in the folder of each run and
    all reads are durable; Ctrl-C sends what has been read, and ends with 130.
    """
    from streamer.cli.send_files import name_of, send_files, send_folder
    from streamer.client.producer import Producer

    if bool(reads) == bool(watch):
        raise UsageError("name either files of reads (READS) or a folder (--watch)")
    if resume and name is None and reads:
        raise UsageError("--resume needs --name, that of the run to go on with")
    check_watch_options(watch, settle=settle, until=until, ledger=ledger)
    if watch and threads > 1:
        raise UsageError("--threads goes with READS, --watch has one")
    endpoint = daemon_options.endpoint_of("ingest", to, config)
    daemon_options.limit_records_by(config)
    answer_seconds = min(daemon_options.ANSWER_SECONDS, timeout)
    sizes: BatchSizes = {"batch_bases": batch_bases, "batch_reads": batch_reads}
    began = time.monotonic()
    if watch:
        name = name or name_of(watch)
    key = daemon_options.keys_of(keys, config, endpoint)
    with Producer(endpoint, name=name, answer_seconds=answer_seconds, keys=key) as producer:
        producer.connect(timeout=timeout)
        if watch:
            sent, bases = send_folder(
                producer, watch, SETTLE_SECONDS if settle is None else settle, until, ledger,
                timeout=timeout, sizes=sizes, quiet=quiet,
            )  # fmt: skip
        else:
            sent, bases = send_files(
                producer, reads or [], marked=name is not None, resume=resume, threads=threads,
                timeout=timeout, sizes=sizes, quiet=quiet,
            )  # fmt: skip
    if not quiet:
        seconds = time.monotonic() - began
        say(f"{sent:,} reads, {bases:,} bases acknowledged in {seconds:.1f} s")
