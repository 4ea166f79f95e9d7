"""``streamer send --watch``: the reads of a folder that a sequencer fills."""

import os
import socket as host
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress

from streamer.cli.choices import say, say_error
from streamer.cli.send_files import Piece, send_all
from streamer.cli.streams import signals_noted
from streamer.client import client_errors
from streamer.client.producer import Producer
from streamer.errors import ReportedError, StreamerError
from streamer.watching import PASSED_OVER
from streamer.watching.file_visit import BatchSizes
from streamer.watching.folder import UNTIL, Folder, Hints
from streamer.watching.ledger import Ledger, digest_of_text, ledger_of
from streamer.watching.watcher import Watcher

_NAME_CHARACTERS = 256
_HEED_SECONDS = 0.2


def name_of(folder: str) -> str:
    """The name of the producer that watches a folder, the same in every run."""
    name = f"{host.gethostname()}:{os.path.abspath(folder)}"
    if len(name) <= _NAME_CHARACTERS and name.isprintable():
        return name
    return f"{host.gethostname()}:{digest_of_text(name)}"


class _Source:
    """See ``streamer.cli.send_files.Source``."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher

    def __iter__(self) -> Iterator[Piece]:
        for sent in self._watcher:
            yield Piece(*sent)

    def resume_hint(self, reads: int) -> str:
        return "the same command goes on from there"


def send_folder(
    producer: Producer,
    path: str,
    settle: float,
    until: Sequence[str] | None,
    ledger: str | None,
    *,
    timeout: float,
    sizes: BatchSizes,
    quiet: bool,
) -> tuple[int, int]:
    """Send all reads until the run is over; how many reads and bases have been acknowledged.

    A first signal to end the process stops the reading: what has been read is sent. ReportedError
    if files or folders were given up, or reads passed over.
    """

    def note(line: str) -> None:
        with suppress(OSError):
            say(line)

    over: list[str] = []

    def pass_over(error: client_errors.TooLargeError, place: str) -> None:
        say_error(f"{place} ({error.read}): {error.problem}{PASSED_OVER}")
        over.append(error.read)

    folder = Folder(path, until or UNTIL)
    where = ledger or ledger_of(path, producer.name, producer.endpoint)
    with closing(Ledger(where, producer.mark, producer.name)) as book:
        if not quiet:
            done = len(book.files)
            begins = f"{done:,} files were read before" if done else "begins with the first record"
            note(f"watches {path} as {producer.name}, with {where}: {begins}")
            if book.begins_anew:
                note("the daemon knows nothing of what was sent before: all is sent again")
        # a daemon that is started anew is waited for
        producer.answer_seconds = timeout
        with closing(Hints(path, note)) as hints, signals_noted() as signals:
            watcher = Watcher(
                folder,
                book,
                hints,
                settle,
                sizes=sizes,
                stopped=lambda: signals,
                acknowledged=lambda: producer.reads_acknowledged,
                note=(lambda line: None) if quiet else note,
                fault=say_error,
            )
            send_all(
                producer,
                _Source(watcher),
                timeout,
                heed_seconds=_HEED_SECONDS,
                passed_over=pass_over,
            )
            if signals and not quiet:
                reads, bases = f"{watcher.reads:,} reads", f"{watcher.bases:,} bases"
                note(f"stopped: {reads}, {bases} acknowledged; the same command goes on from there")
    if over:
        problem = f"passed over {len(over):,} reads that are too large for the daemon; "
        problem += f"{producer.reads_acknowledged:,} are acknowledged"
        raise StreamerError(problem)
    if watcher.given_up:
        problem = f"files or folders given up: {len(watcher.given_up)}"
        raise ReportedError(StreamerError(problem))
    return watcher.reads, watcher.bases
