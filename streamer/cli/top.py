"""``streamer top``: the status of a running daemon, again and again."""

from __future__ import annotations

from typing import Annotated

import typer

from streamer.cli.daemon import ConfigFile

_CLEAR = "\x1b[H\x1b[J"
"""To the upper left corner, and nothing behind it."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("top")(top)


def top(
    at: Annotated[str | None, typer.Option("--at", help="Control endpoint of the daemon.")] = None,
    config: ConfigFile = None,
    every: Annotated[float, typer.Option("--every", min=0.01, help="Seconds between two.")] = 1.0,
    count: Annotated[
        int | None, typer.Option("--count", min=1, help="End after so many, not by Ctrl-C.")
    ] = None,
) -> None:
    """Show how a running daemon is and its totals, as status does, every second."""
    import itertools
    import sys
    import time

    from streamer.cli.daemon import endpoint_of, print_status
    from streamer.clients.control import Control

    with Control(endpoint_of("control", at, config)) as control:
        for shown in itertools.count(1):
            answer = control.status()
            # a file keeps every table, a terminal shows the last
            typer.echo(_CLEAR if sys.stdout.isatty() else "", nl=shown > 1)
            print_status(answer)
            if shown == count:
                return
            time.sleep(every)
