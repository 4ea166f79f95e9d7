"""``streamer watch``: the live feed of a daemon as rows, from a cursor in a file on if asked."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamer.cli import daemon_options
from streamer.cli.choices import FormatChoice, check_files, say
from streamer.cli.streams import signals_noted
from streamer.errors import StreamerError, UsageError
from streamer.output.output_file import line_format, rows_format, write_file

if TYPE_CHECKING:
    from streamer.client.core.subscriber import Cursor
    from streamer.client.messages import Known
    from streamer.client.subscriber import Subscriber
    from streamer.output.rows import RowWriter
    from streamer.protocol.keys import ClientKeys

# between two times that it is stored, each of which waits for the disk
_STORE_SECONDS = 0.2


class CursorFile:
    """A cursor in a file, which is replaced as a whole.

    live: rows are final once they are written, so the cursor is stored now and then; otherwise they
    are final when their file is complete, and the cursor is stored then. found: the file existed.
    """

    def __init__(self, path: str, *, live: bool) -> None:
        self.path = path
        self.live = live
        self.found = False
        self._cursor: Cursor | None = None
        self._stored: Cursor | None = None
        self._next = 0.0

    def read(self) -> Cursor | None:
        """The cursor in the file; None if there is no file, StreamerError if it has no cursor."""
        from streamer.client.core.subscriber import Cursor

        try:
            self._stored = Cursor.from_json(Path(self.path).read_text())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StreamerError(f"{self.path}: cannot read: {error.strerror}") from error
        except (StreamerError, UnicodeDecodeError):
            raise StreamerError(
                f"{self.path}: not a cursor: delete it to begin with the oldest record"
            ) from None
        self.found = True
        return self._stored

    def reach(self, cursor: Cursor | None) -> None:
        """Everything up to this cursor is written."""
        self._cursor = cursor
        now = time.monotonic()
        if self.live and now >= self._next:
            self.store()
            self._next = time.monotonic() + _STORE_SECONDS

    def store(self) -> None:
        """Store the current position."""
        if self._cursor is not None and self._cursor != self._stored:
            # read back without regard to its suffix
            write_file(self.path, [self._cursor.to_json().encode()], plain=True)
            self._stored = self._cursor


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
            "word, decision (whether a read is worth sequencing), retract, upgrade and "
            "settled (after a reload), beat, status, targets, "
            "barcodes, enough or novelty (counts so far); "
            "may be repeated. Without it: match, mismatch and read.",
        ),
    ] = None,
    count: Annotated[int | None, typer.Option(min=1, help="End after this many rows.")] = None,
    seconds: Annotated[
        float | None, typer.Option("--for", min=0.0, help="End after this many seconds.")
    ] = None,
    format_: Annotated[
        FormatChoice | None,
        typer.Option("--format", help="Rows as TSV or JSON lines. Default: by --output, else TSV."),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", help="Write to a file, complete when watch ends."),
    ] = None,
    config: Annotated[
        str | None, typer.Option("--config", "-c", help="The daemon's configuration (TOML).")
    ] = None,
    keys: daemon_options.KeysOption = None,
    cursor: Annotated[
        str | None,
        typer.Option(
            "--from-cursor",
            metavar="FILE",
            help="Continue after what was printed when FILE was written, without FILE at the "
            "oldest record; pull what the feed drops; store the position in FILE.",
        ),
    ] = None,
    sync: Annotated[
        str | None,
        typer.Option("--sync", help="Sync endpoint of the daemon, for --from-cursor."),
    ] = None,
    ready: Annotated[
        str | None,
        typer.Option(
            "--ready-file",
            metavar="FILE",
            help="Write FILE once nothing that is sent from then on is missed; as does the header "
            "of TSV.",
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only errors and gaps.")] = False,
) -> None:
    """Print the results of a running daemon as they come, until it ends.

    Exit code 1 if it falls silent without announcing its end, or cannot continue from the cursor.
    """
    from streamer.client.client_errors import DaemonFailedError, DaemonLostError, DaemonSilentError
    from streamer.client.message_tables import columns_of
    from streamer.output.rows import RowWriter

    check_files([], output, {"--from-cursor": cursor, "--ready-file": ready})
    lines = line_format(rows_format(format_, output), "watch")
    if ready is not None:
        Path(ready).unlink(missing_ok=True)
    place = None if cursor is None else CursorFile(cursor, live=output in (None, "-"))
    answer_seconds = daemon_options.ANSWER_SECONDS
    endpoint = daemon_options.endpoint_of("feed", from_, config)
    key = daemon_options.keys_of(keys, config, endpoint)
    if place is not None:
        sync = daemon_options.endpoint_of("sync", sync, config)
    elif sync is not None:
        raise UsageError("--sync is for --from-cursor")
    with _subscriber(endpoint, sync, topics or _DEFAULT_TOPICS, place, key) as feed:
        if not feed.wait_for_daemon(answer_seconds):
            raise DaemonSilentError(endpoint, answer_seconds)
        if ready is not None:
            Path(ready).write_text(f"{endpoint}\n")
        columns = columns_of(feed.topics)
        # the rows in a file cannot be requested again, so a signal completes the file
        noting: AbstractContextManager[list[int]] = nullcontext([])
        if output not in (None, "-"):
            noting = signals_noted()
        with (
            noting as signals,
            _FeedRows(
                RowWriter(output, lines, columns, keep=True),
                columns if lines == "tsv" else None,
                count,
                place,
            ) as rows,
        ):
            enough = _follow(feed, rows, seconds, quiet, signals)
        # first the rows are written and their file is closed
        if enough:
            return
        if feed.failed:
            raise DaemonFailedError(endpoint)
        if not feed.ended:
            raise DaemonLostError(endpoint, answer_seconds)
        if not quiet:
            say("the daemon has ended")


def _subscriber(
    endpoint: str,
    sync: str | None,
    topics: Sequence[str],
    place: CursorFile | None,
    keys: ClientKeys | None,
) -> Subscriber:
    """A subscriber that begins at the stored position, if there is one."""
    from streamer.client.subscriber import Subscriber
    from streamer.protocol.schema import LIVE_ONLY, RECORD_TOPICS

    answer_seconds = daemon_options.ANSWER_SECONDS
    if place is None or sync is None:
        return Subscriber(endpoint, topics, answer_seconds=answer_seconds, keys=keys)
    start = place.read() or _oldest(sync, keys)
    feed = Subscriber(
        endpoint, topics, sync=sync, cursor=start, answer_seconds=answer_seconds, keys=keys
    )
    live = [topic for topic in feed.topics if topic in LIVE_ONLY or topic not in RECORD_TOPICS]
    if live:
        say(f"{', '.join(live)}: not stored by the daemon, so only new messages")
    return feed


def _oldest(sync: str, keys: ClientKeys | None) -> Cursor:
    """The cursor before the oldest record that a daemon has."""
    from streamer.client.client_errors import DaemonError, DaemonSilentError
    from streamer.client.core.subscriber import Cursor
    from streamer.client.sync import Sync

    seconds = daemon_options.ANSWER_SECONDS
    with Sync(sync, answer_seconds=seconds, keys=keys) as asked:
        try:
            extent = asked.heads()
        except DaemonSilentError:
            raise DaemonError(
                sync, f"no answer within {seconds:g} s: is a daemon with a journal running?"
            ) from None
    return Cursor(extent.stream, extent.oldest - 1)


class _FeedRows:
    """Writes rows of messages, up to ``count``, and stores the position after them.

    padded: the columns that every row has, None for only its own. begun: there was a message.
    """

    def __init__(
        self,
        writer: RowWriter,
        padded: list[str] | None,
        count: int | None,
        place: CursorFile | None,
    ) -> None:
        self._writer = writer
        self._padded = padded
        self._left = count
        self._broken = False
        self.place = place
        self.begun = False

    def write(self, message: Known, cursor: Cursor | None) -> bool:
        """Write the rows of a message, given the cursor after it; returns if there are enough."""
        from streamer.client.message_tables import tables

        self.begun = True
        whole = True
        for table in tables(message):
            rows = table.rows
            if self._left is not None:
                table = table.head(self._left)
                self._left -= table.rows
            whole &= table.rows == rows
            if table.rows:
                self._broken = True
                self._writer.write(table.padded(self._padded) if self._padded else table)
                self._broken = False
        if self.place is not None and whole:
            self.place.reach(cursor)
        return self._left == 0

    def __enter__(self) -> _FeedRows:
        self._writer.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self._writer.__exit__(kind, *rest)
        # an incomplete file is removed
        if self.place is not None and (self.place.live or not self._broken):
            self.place.store()


def _follow(
    feed: Subscriber, rows: _FeedRows, seconds: float | None, quiet: bool, signals: list[int]
) -> bool:
    """Write rows; returns True if there are enough or time is up, False if the daemon has ended.

    A signal noted in ``signals`` also returns True.
    """
    from streamer.client.messages import Gap, NewEpoch, NewStream, Reset

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
            if rows.place is not None:
                rows.place.reach(feed.cursor)
            if feed.ended or feed.lost:
                return False
            continue
        if isinstance(message, Gap):
            lost = f"topic {message.topic}: records after {message.after} to {message.until}"
            say(f"{lost} were missed")
            continue
        if isinstance(message, NewEpoch):
            say(f"the daemon was restarted (epoch {message.epoch}); records continue")
            continue
        if isinstance(message, NewStream):
            say(f"another daemon answers now (stream {message.stream}); records start over")
            continue
        if isinstance(message, Reset):
            assert rows.place is not None
            if message.reason == "too-old" and not (rows.place.found or rows.begun):
                # the oldest record has expired since it was requested
                continue
            raise StreamerError(f"{rows.place.path}: {_RESETS.get(message.reason, message.reason)}")
        if rows.write(message, feed.cursor):
            return True
    return True


_DELETE = "delete it to begin with the oldest record that is kept"
_RESETS = {
    "too-old": f"records after this cursor are no longer kept: {_DELETE}",
    "stream": f"the cursor is of another stream, as the daemon has another journal now: {_DELETE}",
    "future": f"the cursor is beyond the end of the stream, which has lost records: {_DELETE}",
}


def _say_what_never_comes(feed: Subscriber) -> None:
    """Report topics that never have rows, so that nobody waits for them."""
    from streamer.protocol.schema import TOPICS

    if feed.published is None:
        return
    for topic in feed.topics:
        if topic not in feed.published:
            needed = TOPICS[topic].needs or "another configuration"
            say(f"topic {topic}: this daemon has no such rows, which need {needed}")
