"""``streamer top``: the status of a running daemon, again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from streamer.cli.daemon import ConfigFile

if TYPE_CHECKING:
    from streamer.client.subscriber import Subscriber

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
    """Show how a running daemon is and its totals, as status does, every second, until it ends.

    Exit code 1 if it falls silent without saying that it ends.
    """
    import itertools
    import sys

    from streamer.cli.daemon import endpoint_of, print_status
    from streamer.client.control import Control
    from streamer.client.errors import DaemonFailedError, DaemonSilentError
    from streamer.client.subscriber import Subscriber

    with Control(endpoint_of("control", at, config)) as control:
        answer = control.status()
        endpoint = answer["endpoints"]["feed"]
        with Subscriber(endpoint, ["status"]) as feed:
            for shown in itertools.count(1):
                # a file keeps every table, a terminal shows the last
                typer.echo(_CLEAR if sys.stdout.isatty() else "", nl=shown > 1)
                print_status(answer)
                if shown == count:
                    return
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
    typer.echo("streamer: the daemon has ended", err=True)


def _ends(feed: Subscriber, seconds: float) -> bool:
    """Wait; whether the daemon has said meanwhile that it ends."""
    import time

    deadline = time.monotonic() + seconds
    while not feed.ended:
        if feed.receive(max(0.0, deadline - time.monotonic())) is None:
            break
    return feed.ended
