"""``streamer submit``: a command on files, run by a daemon as a job; ``streamer jobs``: its jobs.

The rows of a job are written as its command would have written them.
"""

from __future__ import annotations

import os
import shlex
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from streamer.cli.choices import QuietOption, check_files, say
from streamer.cli.daemon_options import ConfigOption, ControlOption, KeysOption, open_control
from streamer.errors import StreamerError, UsageError
from streamer.output.output_file import OutputFile, check_arrow, rows_format

if TYPE_CHECKING:
    from streamer.client.control import Control
    from streamer.output.output_file import RowsFormat

COLUMNS = ("id", "state", "progress", "submitted", "command", "reason")


def jobs(
    job: Annotated[
        str | None, typer.Argument(metavar="ID", help="One job; all without it.")
    ] = None,
    at: ControlOption = None,
    config: ConfigOption = None,
    keys: KeysOption = None,
    cancel: Annotated[bool, typer.Option("--cancel", help="Cancel the job ID.")] = False,
    retry: Annotated[
        bool,
        typer.Option("--retry", help="Run the failed, cancelled or interrupted job ID again."),
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Return once the job ID has ended.")] = False,
    result: Annotated[bool, typer.Option("--result", help="Write the rows of the job ID.")] = False,
    output: Annotated[
        str | None, typer.Option("-o", "--output", metavar="FILE", help="Where --result goes.")
    ] = None,
    format_: Annotated[
        Literal["table", "tsv", "jsonl", "arrow", "parquet"] | None,
        typer.Option("--format", help="Of the list: table, tsv, jsonl; of rows: all but table."),
    ] = None,
    quiet: QuietOption = False,
) -> None:
    """List the jobs of a running daemon, or cancel one, run it again, or get its rows."""
    asked = [f"--{name}" for name, value in (("cancel", cancel), ("retry", retry)) if value]
    asked += [f"--{name}" for name, value in (("wait", wait), ("result", result)) if value]
    if asked and job is None:
        raise UsageError(f"{asked[0]} needs the ID of a job")
    if cancel and (retry or result):
        raise UsageError(f"--cancel does not go with {asked[1]}")
    if output is not None and not result:
        raise UsageError("--output goes with --result")
    if format_ in (("table",) if result else ("arrow", "parquet")):
        raise UsageError(f"--format {format_} goes {'without' if result else 'with'} --result")

    if result:
        form = check_rows(output, None if format_ == "table" else format_)
    with open_control(at, config, keys) as control:
        if job is None:
            _show(control.jobs(), format_)
            return
        if cancel:
            control.cancel(job)
        if retry:
            control.retry(job)
        if wait:
            follow_job(control, job, quiet=quiet, cancelled=cancel)
        if result:
            write_rows(control, job, output, form)
        elif not (asked and quiet):
            _show([control.job(job)], format_)


def _show(jobs: Sequence[Mapping[str, Any]], format_: str | None) -> None:
    import json

    if format_ == "jsonl":
        for job in jobs:
            typer.echo(json.dumps(job))
    elif format_ == "tsv":
        typer.echo("#" + "\t".join(COLUMNS))
        for job in jobs:
            typer.echo("\t".join(value or "." for value in _row(job)))
    else:
        _table(jobs)


def _row(job: Mapping[str, Any]) -> list[str]:
    """The values of COLUMNS; none contains a tab or a line end."""
    submitted = datetime.fromtimestamp(job["submitted"], UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    line = shlex.join([job["command"], *job["arguments"]])
    words = job["id"], job["state"], f"{job['progress']:.4f}", submitted, line, job["reason"]
    return ["".join(c if c.isprintable() else "?" for c in str(word)) for word in words]


def _table(jobs: Sequence[Mapping[str, Any]]) -> None:
    """For people."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for name in COLUMNS:
        table.add_column(name, overflow="fold", no_wrap=name == "id")
    for job in jobs:
        cells = _row(job)
        cells[2] = f"{100 * job['progress']:.0f} %"
        table.add_row(*map(Text, cells))
    Console(highlight=False).print(table)


def submit(
    line: Annotated[
        list[str],
        typer.Argument(
            metavar="COMMAND ...", help="asm, hamming, primer or lcs, and its own arguments."
        ),
    ],
    at: ControlOption = None,
    config: ConfigOption = None,
    keys: KeysOption = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Return once it has ended, with its rows.")
    ] = False,
) -> None:
    """Have a running daemon run asm, hamming, primer or lcs as a job; prints the job's id.

    Options of submit come before the command, those of the command after it. Files are those of the
    daemon's machine, in a folder that its configuration names.
    """
    from streamer.cli.job_lines import read_line

    job = read_line(line)
    output, format_ = job.own.get("output"), job.own.get("format_")
    if not wait and job.own:
        raise UsageError(f"{', '.join(sorted(job.own)).replace('_', '')}: needs --wait")
    if wait:
        format_ = check_rows(output, format_)
    with open_control(at, config, keys) as control:
        submitted = control.submit([job.command, *job.arguments], os.getcwd())["id"]
        if not wait:
            typer.echo(submitted)
            return
        quiet = bool(job.own.get("quiet"))
        if not quiet:
            # an interrupted client can ask for the job by this id
            say(f"job {submitted}")
        follow_job(control, submitted, quiet=quiet)
        write_rows(control, submitted, output, format_)


_LOOK_SECONDS = 0.2
_STEPS = 10_000
_ENDED = ("done", "failed", "cancelled", "interrupted")


def check_rows(output: str | None, format_: RowsFormat | None) -> RowsFormat:
    """Return the format; fail early if rows cannot be written or the result cannot be read."""
    check_files([], output)
    if format_ != "arrow":
        check_arrow()
    return rows_format(format_, output)


def follow_job(control: Control, job: str, *, quiet: bool, cancelled: bool = False) -> None:
    """Return once a job is done; StreamerError if it ends otherwise.

    cancelled: whether a cancelled job is no error, too. An interrupt leaves the job running.
    """
    from streamer.cli.streams import progress

    with progress(f"job {job}", _STEPS, quiet=quiet, unit="share") as show:
        while (known := control.job(job))["state"] not in _ENDED:
            show(int(known["progress"] * _STEPS))
            time.sleep(_LOOK_SECONDS)
    if known["state"] != "done" and not (cancelled and known["state"] == "cancelled"):
        why = f": {known['reason']}" if known["reason"] else ""
        is_ = "has" if known["state"] == "failed" else "is"
        raise StreamerError(f"job {known['id']} {is_} {known['state']}{why}")


def write_rows(control: Control, job: str, output: str | None, format_: Any) -> None:
    """Write the rows of a job in a format, to a file or standard output (None or ``-``)."""
    from streamer.output.rows import open_rows

    if format_ == "arrow":
        with OutputFile(output, verb="cannot write rows") as file:
            for part in control.result_parts(job):
                file.write(part)
        return
    from streamer.output.arrow_rows import arrow_tables

    with _local(control, job) as path:
        columns, tables = arrow_tables(path)
        with open_rows(output, format_, columns) as writer:
            for table in tables:
                writer.write(table)


@contextmanager
def _local(control: Control, job: str) -> Iterator[str]:
    """The result as a file on this machine: the original, or a temporary copy."""
    from streamer.protocol.endpoints import is_local

    path, size = control.result(job)
    if is_local(control.endpoint) and os.access(path, os.R_OK) and os.path.getsize(path) == size:
        yield path
        return
    with tempfile.NamedTemporaryFile(prefix="streamer-", suffix=".arrow") as copy:
        for part in control.result_parts(job):
            copy.write(part)
        copy.flush()
        yield copy.name
