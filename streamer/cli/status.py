"""``streamer status`` and ``top``: the status of a running daemon, once or again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from streamer.cli.choices import say
from streamer.cli.daemon_options import (
    ConfigOption,
    ControlOption,
    KeysOption,
    endpoint_of,
    keys_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from streamer.client.subscriber import Subscriber

_CLEAR = "\x1b[H\x1b[J"
"""To the upper left corner, and nothing behind it."""


def status(
    at: ControlOption = None,
    config: ConfigOption = None,
    keys: KeysOption = None,
    format_: Annotated[
        Literal["table", "tsv", "jsonl"],
        typer.Option("--format", help="A table for people, or rows for programs."),
    ] = "table",
) -> None:
    """Show the state and the totals of a running daemon."""
    import json

    from streamer.client.control import Control

    endpoint = endpoint_of("control", at, config)
    own = keys_of(keys, config, endpoint)
    with Control(endpoint, keys=own) as control:
        answer = control.status()
    if format_ == "jsonl":
        typer.echo(json.dumps(answer))
    elif format_ == "tsv":
        typer.echo("#key\tvalue")
        for key, value in _flat(answer):
            typer.echo(f"{key}\t{'.' if value in (None, '') else value}")
    else:
        _print_table(answer)


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
) -> None:
    """Show the state and the totals of a running daemon every second, until it ends.

    Exit code 1 if it falls silent without announcing its end.
    """
    import itertools
    import sys

    from streamer.client.client_errors import DaemonFailedError, DaemonSilentError
    from streamer.client.control import Control
    from streamer.client.subscriber import Subscriber
    from streamer.protocol.endpoints import reachable

    endpoint = endpoint_of("control", at, config)
    own = keys_of(keys, config, endpoint)
    with Control(endpoint, keys=own) as control:
        answer = control.status()
        feed_endpoint = reachable(answer["endpoints"]["feed"], endpoint)
        with Subscriber(feed_endpoint, ["status"], keys=own) as feed:
            for shown in itertools.count(1):
                # a file keeps every table, a terminal shows the last
                typer.echo(_CLEAR if sys.stdout.isatty() else "", nl=shown > 1)
                _print_table(answer)
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
                raise DaemonFailedError(feed_endpoint)
    say("the daemon has ended")


def _ends(feed: Subscriber, seconds: float) -> bool:
    """Wait; whether the daemon has said meanwhile that it ends."""
    import time

    deadline = time.monotonic() + seconds
    while not feed.ended:
        if feed.receive(max(0.0, deadline - time.monotonic())) is None:
            break
    return feed.ended


def _flat(answer: dict[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in answer.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, ",".join(map(str, value)) if isinstance(value, list) else value


def _print_table(answer: dict[str, object]) -> None:
    """The answer as a table for people."""
    from rich.console import Console
    from rich.table import Table

    fields = dict(_flat(answer))
    totals = {key[len("totals.") :]: value for key, value in fields.items() if "totals." in key}
    words = {
        "state": f"{fields['state']}, up {float(str(fields['uptime_seconds'])):.0f} s",
        "dictionary": f"{fields['dictionary.kmers']:,} k-mers, k={fields['dictionary.k']}, "
        f"{fields['dictionary.mode']}, {fields['dictionary.strands']}, "
        f"{fields['dictionary.targets']:,} targets, version {fields['dictionary.version']}",
        "revision": _revision(fields),
        "limit": _limit(fields),
        "reads": f"{totals['reads']:,}",
        "bases": f"{totals['bases']:,}",
        "windows": f"{totals['windows']:,}",
        "windows matched": _share(totals["matches"], totals["windows"]),
        "reads on target": _share(totals["reads_on_target"], totals["reads"]),
        "new k-mers": f"{totals['new_kmers']:,}",
        "speed": f"{totals['bases_per_second']:,.0f} bases/s while there was work",
        "waiting": f"{fields['queue.batches']:,} batches, {fields['queue.bytes']:,} of "
        f"{fields['queue.limit_bytes']:,} bytes",
        "producers": f"{fields['producers.active']:,} active, {fields['producers.known']:,} known",
        "refused": f"{fields['refused']:,} batches",
        "log": f"{fields.get('log.dropped', 0):,} lines dropped",
    } | {
        name: str(fields[f"endpoints.{name}"])
        for name in ("ingest", "feed", "control")
        if f"endpoints.{name}" in fields
    }
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in words.items():
        table.add_row(name, text)
    Console(highlight=False).print(table)


def _limit(fields: Mapping[str, object]) -> str:
    """The limit of a dictionary that grows, and what happens at it."""
    most = fields.get("dictionary.limit", 0)
    if not most:
        return "none"
    effect = {"freeze": "no more are added", "refuse": "batches are refused"}
    reached = "reached" if fields["dictionary.limited"] else "then"
    return f"{most:,} k-mers, {reached}: {effect[str(fields['dictionary.at_limit'])]}"


def _revision(fields: Mapping[str, object]) -> str:
    """How many batches are to be matched again."""
    left = fields.get("revision.batches")
    return (
        "none"
        if left is None
        else f"to version {fields['revision.version']}, {left:,} batches left"
    )


def _share(part: object, whole: object) -> str:
    percent = f" ({100 * int(str(part)) / int(str(whole)):.1f} %)" if whole else ""
    return f"{part:,}{percent}"
