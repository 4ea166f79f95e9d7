"""``streamer status``: the status of a running daemon."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from streamer.cli.daemon_options import ConfigOption, ControlOption, KeysOption, open_control
from streamer.errors import UsageError, printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


def status(
    at: ControlOption = None,
    config: ConfigOption = None,
    keys: KeysOption = None,
    format_: Annotated[
        Literal["table", "tsv", "jsonl"],
        typer.Option("--format", help="A table for people, or rows for programs."),
    ] = "table",
    wait: Annotated[
        float | None,
        typer.Option(
            "--wait",
            min=0.0,
            metavar="SECONDS",
            help="Wait up to so long for a daemon that has not started, or is still starting.",
        ),
    ] = None,
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topic", help="With --wait: until somebody watches this topic, too; may be repeated."
        ),
    ] = None,
) -> None:
    """Show the state and the totals of a running daemon."""
    import json

    if topics and wait is None:
        raise UsageError("--topic is for --wait")
    answer = _answer(at, config, keys, wait, topics or ())
    if format_ == "jsonl":
        typer.echo(json.dumps(answer))
    elif format_ == "tsv":
        typer.echo("#key\tvalue")
        for key, value in _flat(answer):
            typer.echo(f"{key}\t{'.' if value in (None, '') else printable(str(value))}")
    else:
        print_table(answer)


def _answer(
    at: str | None, config: str | None, keys: str | None, wait: float | None, topics: Sequence[str]
) -> dict[str, Any]:
    """The status of a daemon; with ``wait``, once it has started and its topics are watched."""
    from streamer.client.client_errors import DaemonError, DaemonSilentError

    problem: DaemonError
    end = time.monotonic() + (wait or 0.0)
    while True:
        with open_control(at, config, keys) as control:
            try:
                answer = control.status()
                unwatched = [topic for topic in topics if f"{topic}." not in answer["topics"]]
                if wait is None or not (unwatched or answer["state"] == "starting"):
                    return answer
                lacking = (
                    f"nobody watches {', '.join(unwatched)}" if unwatched else "still starting"
                )
                problem = DaemonError(control.endpoint, f"after {wait:g} s {lacking}")
            except DaemonSilentError as error:
                problem = error
        if time.monotonic() >= end:
            raise problem
        time.sleep(_POLL_SECONDS)


_POLL_SECONDS = 0.1


def _flat(answer: dict[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in answer.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, ",".join(map(str, value)) if isinstance(value, list) else value


def print_table(answer: dict[str, Any]) -> None:
    """Print the answer as a table for people."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

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
    }
    # the stages that the watchdog reports as stuck, and what they wait for
    for name, stage in answer.get("stuck", {}).items():
        words[f"stuck: {name}"] = f"for {stage['seconds']:.0f} s, waits for {stage['waits_for']}"
    words |= {
        name: str(fields[f"endpoints.{name}"])
        for name in ("ingest", "feed", "control", "sync", "metrics", "web")
        if f"endpoints.{name}" in fields
    }
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in words.items():
        # escaped, since a path may look like rich markup
        table.add_row(name, Text(text))
    Console(highlight=False).print(table)


def _limit(fields: Mapping[str, object]) -> str:
    """The limit of a growing dictionary, and what happens there."""
    most = fields.get("dictionary.limit", 0)
    if not most:
        return "none"
    effect = {"freeze": "no more are added", "refuse": "batches are refused"}
    reached = "reached" if fields["dictionary.limited"] else "then"
    return f"{most:,} k-mers, {reached}: {effect[str(fields['dictionary.at_limit'])]}"


def _revision(fields: Mapping[str, object]) -> str:
    """How many batches are still to be matched again."""
    batches = fields.get("revision.batches")
    return (
        "none"
        if batches is None
        else f"to version {fields['revision.version']}, {batches:,} batches left"
    )


def _share(part: object, whole: object) -> str:
    percent = f" ({100 * int(str(part)) / int(str(whole)):.1f} %)" if whole else ""
    return f"{part:,}{percent}"
