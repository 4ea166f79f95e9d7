"""``streamer submit``: a command on files, run by a daemon as a job."""

from __future__ import annotations

from typing import Annotated

import typer

from streamer.cli.daemon_options import ConfigOption, ControlOption, KeysOption, open_control


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
    import os

    from streamer.cli.choices import say
    from streamer.cli.job_lines import read_line
    from streamer.cli.job_rows import check_rows, follow_job, write_rows
    from streamer.errors import UsageError

    job = read_line(line)
    output, format_ = job.given.get("output"), job.given.get("format_")
    if not wait and job.given:
        message = f"{', '.join(sorted(job.given)).replace('_', '')}: needs --wait"
        raise UsageError(message)
    if wait:
        format_ = check_rows(output, format_)
    with open_control(at, config, keys) as control:
        submitted = control.submit([job.command, *job.arguments], os.getcwd())["id"]
        if not wait:
            typer.echo(submitted)
            return
        quiet = bool(job.given.get("quiet"))
        if not quiet:
            # an interrupted client can ask for the job by this id
            say(f"job {submitted}")
        follow_job(control, submitted, quiet=quiet)
        write_rows(control, submitted, output, format_)
