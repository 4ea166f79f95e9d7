"""A progress bar on a terminal for work that takes more than two seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Literal

from streamer.errors import printable

SHOW_AFTER_SECONDS = 2.0

follow: Callable[[int, int | None], None] | None = None
"""In a job's process, takes the work done and the total in place of a bar."""


@contextmanager
def progress(
    label: str, total: int | None, *, quiet: bool, unit: Literal["bytes", "share"] = "bytes"
) -> Iterator[Callable[[int], None]]:
    """A function that takes the work done so far (of ``total``) and shows it, as bytes or a share.

    Nothing is shown unless standard error is a terminal and two seconds have passed.
    """
    if follow is not None:
        yield partial(_report, follow, total)
        return
    if quiet or not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        *(
            (DownloadColumn(), TransferSpeedColumn())
            if unit == "bytes"
            else (TaskProgressColumn(),)
        ),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    task = bar.add_task(printable(label), total=total)
    started = time.monotonic()

    def show(done: int) -> None:
        if not bar.live.is_started and time.monotonic() - started > SHOW_AFTER_SECONDS:
            bar.start()
        bar.update(task, completed=done)

    try:
        yield show
    finally:
        if bar.live.is_started:
            bar.stop()


def _report(follow: Callable[[int, int | None], None], total: int | None, done: int) -> None:
    follow(done, total)
