"""``streamer top``: the status of a running daemon, refreshed as a page or as tables."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from streamer.cli.choices import say
from streamer.cli.daemon_options import ConfigOption, ControlOption, KeysOption, open_control
from streamer.cli.status import print_table
from streamer.errors import StreamerError, UsageError

if TYPE_CHECKING:
    from streamer.client.control import Control
    from streamer.client.subscriber import Subscriber

_CLEAR = "\x1b[H\x1b[J"
"""Moves the cursor to the upper left corner and clears what follows."""


def top(
    at: ControlOption = None,
    config: ConfigOption = None,
    keys: KeysOption = None,
    every: Annotated[
        float, typer.Option("--every", min=0.01, help="Seconds between two tables.")
    ] = 1.0,
    count: Annotated[
        int | None,
        typer.Option("--count", min=1, help="End after this many tables; without it, by Ctrl-C."),
    ] = None,
    format_: Annotated[
        Literal["page", "table", "jsonl"] | None,
        typer.Option(
            "--format",
            help="A page with keys, tables, or a JSON object a line. Default: the page, if there "
            "is a terminal and the extra 'top' of the package, else tables.",
        ),
    ] = None,
) -> None:
    """Show the state and the totals of a running daemon every second, until it ends.

    Exit code 1 if it falls silent without announcing its end.
    """
    form = format_ or ("table" if count or not _can_draw() else "page")
    if form == "page":
        _check_page(count)
    with open_control(at, config, keys) as control:
        ended = _page(control, every) if form == "page" else _tables(control, every, count, form)
    if ended:
        say("the daemon has ended")


def _can_draw() -> bool:
    """Whether there is a terminal, and the package that draws on it."""
    return (
        all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))
        and os.environ.get("TERM", "dumb") != "dumb"
        and importlib.util.find_spec("textual") is not None
    )


def _check_page(count: int | None) -> None:
    if count:
        raise UsageError("--count is for --format table and jsonl")
    if importlib.util.find_spec("textual") is None:
        raise StreamerError(
            "--format page needs the package textual: pip install '.[top]' in a clone"
        )
    if not _can_draw():
        raise UsageError("--format page needs a terminal")


def _page(control: Control, every: float) -> bool:
    from streamer.cli.streams import signals_noted
    from streamer.terminal.top_page import show

    with signals_noted() as signals:
        return show(control, control.keys, every, signals)


def _tables(control: Control, every: float, count: int | None, form: str) -> bool:
    """Print tables; returns whether the daemon has ended."""
    from streamer.client.client_errors import DaemonFailedError, DaemonSilentError
    from streamer.client.subscriber import Subscriber
    from streamer.protocol.endpoints import reachable

    answer = control.status()
    endpoint = reachable(answer["endpoints"]["feed"], control.endpoint)
    with Subscriber(endpoint, ["status"], keys=control.keys) as feed:
        for shown in itertools.count(1):
            _print(answer, form, first=shown == 1)
            if shown == count:
                return False
            if _ends(feed, every):
                break
            try:
                answer = control.status()
            except DaemonSilentError:
                if not _ends(feed, 0):
                    raise
                break
        if feed.failed:
            raise DaemonFailedError(endpoint)
    return True


def _print(answer: dict[str, Any], form: str, *, first: bool) -> None:
    if form == "jsonl":
        typer.echo(json.dumps(answer))
        # flush, since a program may wait for each line
        sys.stdout.flush()
        return
    # a file keeps every table, a terminal shows the last one
    typer.echo(_CLEAR if sys.stdout.isatty() else "", nl=not first)
    print_table(answer)


def _ends(feed: Subscriber, seconds: float) -> bool:
    """Wait; returns whether the daemon has announced its end meanwhile."""
    deadline = time.monotonic() + seconds
    while not feed.ended:
        if feed.receive(max(0.0, deadline - time.monotonic())) is None:
            break
    return feed.ended
