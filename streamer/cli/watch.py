"""``streamer watch``: the live feed of a daemon as rows."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

from streamer.cli import daemon_options
from streamer.cli.choices import FormatChoice, say
from streamer.cli.file_checks import check_files
from streamer.cli.streams import signals_noted

if TYPE_CHECKING:
    from streamer.client.subscriber import Subscriber
    from streamer.output.rows import RowWriter

_DEFAULT_TOPICS = ("match", "mismatch", "read")


def watch(
    from_: Annotated[
        str | None, typer.Option("--from", help="Feed endpoint of the daemon.")
    ] = None,
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            help="match, mismatch, near or ltb (within the distance), delta (new k-mers), read, "
            "word, beat or status; "
            "may be repeated. Without it: match, mismatch and read.",
        ),
    ] = None,
    count: Annotated[int | None, typer.Option(min=1, help="End after this many rows.")] = None,
    seconds: Annotated[
        float | None, typer.Option("--for", min=0.0, help="End after this many seconds.")
    ] = None,
    format_: Annotated[
        FormatChoice, typer.Option("--format", help="Rows as TSV or JSON lines.")
    ] = "tsv",
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", help="Write to a file, complete when watch ends."),
    ] = None,
    config: Annotated[
        str | None, typer.Option("--config", "-c", help="The daemon's configuration (TOML).")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only errors and gaps.")] = False,
) -> None:
    """Print the results of a running daemon as they come, until it ends.

    Exit code 1 if it falls silent without announcing its end.
    """
    from streamer.client.errors import DaemonFailedError, DaemonLostError, DaemonSilentError
    from streamer.client.subscriber import Subscriber
    from streamer.client.tables import columns_of
    from streamer.output.rows import RowWriter

    check_files([], output)
    chosen = topics or list(_DEFAULT_TOPICS)
    answer_seconds = daemon_options.ANSWER_SECONDS
    endpoint = daemon_options.endpoint_of("feed", from_, config)
    with Subscriber(endpoint, chosen, answer_seconds=answer_seconds) as feed:
        if not feed.wait_for_daemon(answer_seconds):
            raise DaemonSilentError(endpoint, answer_seconds)
        columns = columns_of(feed.topics)
        # nobody can ask for the rows in a file again: a signal ends it in order
        noting: AbstractContextManager[list[int]] = nullcontext([])
        if output not in (None, "-"):
            noting = signals_noted()
        with (
            noting as signals,
            RowWriter(output, format_, columns, keep=True) as rows,
        ):
            padded = format_ == "tsv"
            enough = _follow(feed, rows, columns, count, seconds, padded, quiet, signals)
        # the rows are written and their file is closed
        if enough:
            return
        if feed.failed:
            raise DaemonFailedError(endpoint)
        if not feed.ended:
            raise DaemonLostError(endpoint, answer_seconds)
        if not quiet:
            say("the daemon has ended")


def _follow(
    feed: Subscriber,
    rows: RowWriter,
    columns: list[str],
    count: int | None,
    seconds: float | None,
    padded: bool,
    quiet: bool,
    signals: list[int],
) -> bool:
    """Write rows; whether there are enough or the time is over, or else the daemon is gone.

    A signal that was noted in ``signals`` is enough, too.
    """
    import time

    from streamer.client.messages import Gap, NewEpoch, NewStream, Reset
    from streamer.client.tables import table

    end = None if seconds is None else time.monotonic() + seconds
    damage = published = None
    while not signals and (end is None or time.monotonic() < end):
        message = feed.receive(0.2 if end is None else min(0.2, max(0, end - time.monotonic())))
        if feed.damage is not damage:
            damage = feed.damage
            say(f"a message was dropped: {damage}")
        if feed.published != published:
            published = feed.published
            if not quiet:
                _say_what_never_comes(feed)
        if message is None:
            if feed.ended or feed.lost:
                return False
            continue
        if isinstance(message, Gap):
            lost = f"topic {message.topic}: records after {message.after} to {message.until}"
            say(f"{lost} were missed")
            continue
        if isinstance(message, NewEpoch):
            say(f"the daemon was restarted (epoch {message.epoch}); records go on")
            continue
        if isinstance(message, Reset):
            say(f"the cursor cannot be gone on from ({message.reason}): after {message.at}")
            continue
        if isinstance(message, NewStream):
            say(f"another daemon answers now (stream {message.stream}); records begin anew")
            continue
        found = table(message)
        if count is not None:
            found = found.head(count)
            count -= found.rows
        if found.rows:
            rows.write(found.padded(columns) if padded else found)
        if count == 0:
            return True
    return True


def _say_what_never_comes(feed: Subscriber) -> None:
    """Topics without rows, so that nobody waits for them."""
    from streamer.protocol.schema import TOPICS

    if feed.published is None:
        return
    for topic in feed.topics:
        if topic not in feed.published:
            needed = TOPICS[topic].needs or "another configuration"
            say(f"topic {topic}: this daemon has no such rows, which need {needed}")
