"""``streamer jobs``: lists jobs, cancels them, runs them again, and gets their results."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import typer

from streamer.cli.choices import QuietOption
from streamer.cli.daemon_options import ConfigOption, ControlOption, KeysOption, open_control
from streamer.errors import UsageError

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
        message = f"{asked[0]} needs the ID of a job"
        raise UsageError(message)
    if cancel and (retry or result):
        message = f"--cancel does not go with {asked[1]}"
        raise UsageError(message)
    if output is not None and not result:
        message = "--output goes with --result"
        raise UsageError(message)
    if format_ in (("table",) if result else ("arrow", "parquet")):
        message = f"--format {format_} goes {'without' if result else 'with'} --result"
        raise UsageError(message)

    from streamer.cli.job_rows import check_rows, follow_job, write_rows

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


def _show(found: Sequence[Mapping[str, Any]], format_: str | None) -> None:
    import json

    if format_ == "jsonl":
        for one in found:
            typer.echo(json.dumps(one))
    elif format_ == "tsv":
        typer.echo("#" + "\t".join(COLUMNS))
        for one in found:
            typer.echo("\t".join(value or "." for value in _row(one)))
    else:
        _table(found)


def _row(job: Mapping[str, Any]) -> list[str]:
    """The values of COLUMNS; none contains a tab or a line end."""
    from datetime import UTC, datetime

    submitted = datetime.fromtimestamp(job["submitted"], UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    line = shlex.join([job["command"], *job["arguments"]])
    words = job["id"], job["state"], f"{job['progress']:.4f}", submitted, line, job["reason"]
    return ["".join(c if c.isprintable() else "?" for c in str(word)) for word in words]


def _table(found: Sequence[Mapping[str, Any]]) -> None:
    """For people."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for name in COLUMNS:
        table.add_column(name, overflow="fold", no_wrap=name == "id")
    for one in found:
        cells = _row(one)
        cells[2] = f"{100 * one['progress']:.0f} %"
        table.add_row(*map(Text, cells))
    Console(highlight=False).print(table)
