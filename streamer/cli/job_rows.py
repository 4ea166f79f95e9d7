"""Waits for a job, and writes its rows as its command would have written them."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from streamer.errors import StreamerError

if TYPE_CHECKING:
    from streamer.client.control import Control
    from streamer.output.formats import RowsFormat

_LOOK_SECONDS = 0.2
_STEPS = 10_000
_ENDED = ("done", "failed", "cancelled", "interrupted")


def check_rows(output: str | None, given: RowsFormat | None) -> RowsFormat:
    """Return the format; fail early if rows cannot be written or the result cannot be read."""
    from streamer.cli.file_checks import check_files
    from streamer.output.formats import check_arrow, rows_format

    check_files([], output)
    if given != "arrow":
        check_arrow()
    return rows_format(given, output)


def follow_job(control: Control, job: str, *, quiet: bool, cancelled: bool = False) -> None:
    """Return once a job is done; StreamerError if it ends otherwise.

    cancelled: whether a cancelled job is no error, too. An interrupt leaves the job running.
    """
    from streamer.cli.progress import progress

    with progress(f"job {job}", _STEPS, quiet=quiet, unit="share") as show:
        while (known := control.job(job))["state"] not in _ENDED:
            show(int(known["progress"] * _STEPS))
            time.sleep(_LOOK_SECONDS)
    if known["state"] != "done" and not (cancelled and known["state"] == "cancelled"):
        raise StreamerError(_end_of(known))


def _end_of(job: dict[str, Any]) -> str:
    why = f": {job['reason']}" if job["reason"] else ""
    return f"job {job['id']} {'is' if job['state'] != 'failed' else 'has'} {job['state']}{why}"


def write_rows(control: Control, job: str, output: str | None, format_: Any) -> None:
    """Write the rows of a job in a format, to a file or standard output (None or ``-``)."""
    from streamer.output.output_file import OutputFile
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
