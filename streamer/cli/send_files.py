"""``streamer send``: read, send, wait for acknowledgements, report the place to resume at.

The daemon keeps that place with each batch, as a mark: of files ``SendMark``, of a folder that of
its ledger.
"""

from __future__ import annotations

import os
import socket as host
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, nullcontext, suppress
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

import msgpack

from streamer.cli import daemon_options
from streamer.cli.choices import say, say_error
from streamer.cli.streams import progress, signals_noted
from streamer.client import client_errors
from streamer.client.producer import EncodedBatch, Mark, Piece, Producer, encoded, part_of
from streamer.errors import DataError, ReportedError, StreamerError
from streamer.sequences.files import work_on_batches
from streamer.sequences.read_batch import ReadBatch
from streamer.sequences.repeated_names import RepeatedNames
from streamer.sequences.side_by_side import LEAST_THREADS
from streamer.sequences.source import shown_name, size_of_files
from trie.cpu.interrupts import interrupt_in
from trie.cpu.team import Team, results_of
from trie.cpu.threads import prefetched, usable_cores

if TYPE_CHECKING:
    from streamer.watching.file_visit import BatchSizes

# of another form is a mark of another program
_FORM = "streamer send 1"
# of a path in a mark: at most 256 bytes are allowed in all
_PATH_BYTES = 120
_DIGEST_BYTES = 8


class SendMark(NamedTuple):
    """The first ``records`` of file number ``file``, from 0, and all files before it.

    last: a digest of the name of the last of them. path: the end of the file's. paths: a digest of
    all paths up to it, as given.
    """

    file: int
    records: int
    last: bytes
    path: bytes
    paths: bytes

    @classmethod
    def at(cls, paths: Sequence[str], file: int, records: int, last: str) -> SendMark:
        """The mark behind a record of this name."""
        path, digest = _about(paths, file)
        return cls(file, records, name_digest(last), path, digest)

    @classmethod
    def unpack(cls, mark: bytes, paths: Sequence[str], name: str) -> SendMark:
        """The mark of producer ``name``; StreamerError unless it stands in one of the files."""
        try:
            form, *fields = msgpack.unpackb(mark)
            file, records, last, path, digest = fields
        except (ValueError, TypeError):
            form = ""
        if form != _FORM:
            problem = (
                f"the mark of producer '{name}' was not made by `streamer send`: send without "
            )
            problem += "--resume, or under another name"
            raise StreamerError(problem)
        was = path.decode("utf-8", "replace")
        problem = f"producer '{name}' has come to file {file + 1} ({was}): give the same files"
        if file >= len(paths):
            problem += f" in the same order, not {len(paths)}"
            raise StreamerError(problem)
        if _about(paths, file) != (path, digest):
            problem += f" in the same order, not {shown_name(paths[file])} or others before it"
            raise StreamerError(problem)
        return cls(file, records, last, path, digest)

    def pack(self) -> bytes:
        """The mark as bytes, at most 256."""
        packed: bytes = msgpack.packb([_FORM, *self])
        return packed

    def check(self, path: str, records: int, last: str) -> None:
        """DataError unless the file is as it was: ``records``, at most as asked, the last so."""
        if records < self.records:
            raise DataError(
                f"has {records:,} records, but {self.records:,} are durable: it has changed",
                file=shown_name(path),
            )
        if name_digest(last) != self.last:
            raise DataError(
                f"is not the last durable one ({last}): the file has changed",
                file=shown_name(path),
                record=self.records,
            )


def name_digest(name: str) -> bytes:
    """A digest of the name of a record."""
    return sha256(name.encode("utf-8", "surrogateescape")).digest()[:_DIGEST_BYTES]


def _about(paths: Sequence[str], file: int) -> tuple[bytes, bytes]:
    """The end of a path, and a digest of all up to it."""
    names = [os.fsencode(path) for path in paths[: file + 1]]
    return names[-1][-_PATH_BYTES:], sha256(b"\0".join(names)).digest()[:_DIGEST_BYTES]


# how long a read of a pipe waits at most for others
_FLUSH_SECONDS = 0.4
# between two looks for answers while a folder has no new reads
_HEED_SECONDS = 0.2
# the others are for the daemon, which is often on the same machine
_CORES_A_THREAD = 4
_NAME_CHARACTERS = 256


class Files:
    """The reads of several files, in order, and where each of them stands.

    ``reads`` and ``bases`` count what has been read, without what is skipped. start: what to skip.
    marked: the reads have marks for a run that goes on. ``on_bytes`` is as in ``read_batches``.
    note: called with a line for people. threads: that read and encode; fewer than LEAST_THREADS
    make no difference, and pipes are read by one.
    """

    def __init__(
        self,
        paths: Sequence[str],
        *,
        start: SendMark | None = None,
        marked: bool,
        batch_bases: int,
        batch_reads: int,
        on_bytes: Callable[[int], None],
        note: Callable[[str], None],
        threads: int = 1,
    ) -> None:
        self.reads = self.bases = 0
        self.paths = paths
        self._start = start
        self._marked = marked
        self._first = start.file if start else 0
        self._batch_bases = batch_bases
        self._batch_reads = batch_reads
        self._on_bytes = on_bytes
        self._note = note
        self._threads = threads
        self._bytes = self._bytes_before = 0
        # the reads before each file that has been begun, at the end of all those of all files
        self._before: list[int] = []

    def __iter__(self) -> Iterator[Piece]:
        """Reads of one file each.

        DataError as in ``read_batches``, and for a file of which less is there than is skipped.
        """
        several = self._threads >= LEAST_THREADS and size_of_files(self.paths) is not None
        with Team(self._threads) if several else nullcontext() as team:
            for index in range(self._first, len(self.paths)):
                yield from self._of_file(index, team)
        self._before.append(self.reads)

    def _of_file(self, index: int, team: Team | None) -> Iterator[Piece]:
        path = self.paths[index]
        start = self._start if index == self._first else None
        done = 0
        # of mates in two files both have the name
        repeated = RepeatedNames()
        self._before.append(self.reads - (start.records if start else 0))
        self._bytes_before = self._bytes
        for batch in self._batches(path, team):
            skipped = min(max(0, start.records - done), len(batch)) if start else 0
            if start and skipped and done + skipped == start.records:
                start.check(path, start.records, batch.names[skipped - 1])
            done += skipped
            if skipped == len(batch):
                continue
            rest = _without(batch, skipped) if skipped else batch
            self.reads += len(rest)
            self.bases += rest.symbols
            if line := repeated.line(rest.names):
                self._note(f"{shown_name(path)}: {line}")
            yield Piece(rest, self._marks(index, done, rest.names) if self._marked else b"")
            done += len(rest)
        if start and done < start.records:
            start.check(path, done, "")

    def _batches(self, path: str, team: Team | None) -> Iterator[EncodedBatch | ReadBatch]:
        made = work_on_batches(
            [path],
            encoded,
            batch_bases=self._batch_bases,
            batch_reads=self._batch_reads,
            on_bytes=self._count_bytes,
            context=True,
            flush_seconds=_FLUSH_SECONDS,
            team=team,
        )
        if team is None:
            return results_of(made)
        return team.results(made, pulls="parse", works="encode")

    def _marks(self, file: int, before: int, names: Sequence[str]) -> Mark:
        return lambda done: SendMark.at(self.paths, file, before + done, names[done - 1]).pack()

    def _count_bytes(self, read: int) -> None:
        self._bytes = self._bytes_before + read
        self._on_bytes(self._bytes)

    def resume_hint(self, reads: int) -> str:
        """The file and the 1-based record that follow the first ``reads``, for people."""
        skipped = self._start.records if self._start else 0
        before = self._before.copy() or [-skipped]
        at = max(number for number, start in enumerate(before) if start <= reads)
        record = reads - before[at] + 1
        if (at := at + self._first) == len(self.paths):
            return "nothing is left to send"
        which = f" (file {at + 1} of {len(self.paths)})" if len(self.paths) > 1 else ""
        return f"go on from {shown_name(self.paths[at])}{which}, record {record}"


def _without(batch: EncodedBatch | ReadBatch, skipped: int) -> ReadBatch:
    """The reads behind the first ``skipped``."""
    reads = batch.decoded() if isinstance(batch, EncodedBatch) else batch
    return part_of(reads, skipped, len(reads))


def send_all(
    producer: Producer,
    pieces: Iterable[Piece],
    resume_hint: Callable[[int], str],
    timeout: float,
    *,
    heed_seconds: float = 0.02,
    passed_over: Callable[[client_errors.TooLargeError, str], None] | None = None,
) -> None:
    """Send all reads and wait for their acknowledgement; an error that ends it comes with a line.

    What ``pieces`` raises ends it once those before have arrived. resume_hint: the place after a
    number of reads, in words. heed_seconds: between two looks for answers while no read comes.
    timeout: seconds without any progress. passed_over: called for each read that is too large for
    the daemon, with its place; the others go on. By default it is an error. The line, on standard
    error, says how far it came.
    """
    try:
        for piece in prefetched(pieces, idle=producer.heed, idle_seconds=heed_seconds):
            _send(producer, piece, timeout, passed_over)
        producer.flush(timeout=timeout)
    except BaseException as error:
        answered = False
        try:
            answered = _await_answers(producer, error, timeout)
        finally:
            hint = resume_hint(producer.reads_acknowledged)
            say(f"{_how_far(producer, answered)}; {hint}")
        raise


def _send(
    producer: Producer,
    piece: Piece,
    timeout: float,
    passed_over: Callable[[client_errors.TooLargeError, str], None] | None,
) -> None:
    (reads, mark, *_), done = piece, 0
    while True:
        try:
            producer.send(reads, timeout=timeout, mark=mark)
            return
        except client_errors.TooLargeError as error:
            if passed_over is None:
                raise
            done += error.index + 1
            passed_over(error, f"{shown_name(piece.place)}: record {piece.before + done}")
        # even if no reads remain: the mark moves on
        reads, mark = _without(piece.reads, done), _behind(done, piece.mark)


def _behind(done: int, mark: bytes | Mark) -> bytes | Mark:
    return (lambda more: mark(done + more)) if callable(mark) else mark


def _await_answers(producer: Producer, error: BaseException, timeout: float) -> bool:
    """Wait for the answers to what has gone out; whether they have come."""
    if isinstance(error, client_errors.DaemonSilentError):
        return False
    if isinstance(error, client_errors.RefusedError | client_errors.LostBatchesError):
        # the daemon takes nothing that went out after what it refused; if it failed, it loses some
        return producer.state != "failed"
    if isinstance(error, client_errors.StalledError) or interrupt_in(error):
        if interrupt_in(error):
            # who wants to end waits for no daemon that is started anew
            producer.answer_seconds = min(producer.answer_seconds, daemon_options.ANSWER_SECONDS)
        with suppress(client_errors.RefusedError, client_errors.LostBatchesError):
            try:
                producer.settle(timeout=timeout)
            except client_errors.DaemonSilentError:
                return False
        return True
    # the reads before the fault are good: they arrive
    try:
        producer.flush(timeout=timeout)
    except client_errors.DaemonError as worse:
        _await_answers(producer, worse, timeout)
        raise
    return True


def _how_far(producer: Producer, answered: bool) -> str:
    reads, sent = producer.reads_acknowledged, producer.reads_sent
    text = f"{reads:,} of {sent:,} reads sent are acknowledged"
    if producer.last_acknowledged is not None:
        text += f", the last is {producer.last_acknowledged}"
    if not answered:
        matched = producer.reads_matched
        text += f" ({matched:,} are matched, {sent - reads:,} have no answer)"
    return text


def send_files(
    producer: Producer,
    paths: Sequence[str],
    *,
    marked: bool,
    resume: bool,
    timeout: float,
    threads: int,
    sizes: BatchSizes,
    quiet: bool,
) -> tuple[int, int]:
    """Send the reads of files; how many reads and bases."""
    start = None
    if resume and producer.mark:
        start = SendMark.unpack(producer.mark, paths, producer.name)
    if resume and not quiet:
        say(_begins(paths, start, producer.name))
    unsent = size_of_files(paths[start.file :] if start else paths)
    with progress("sending", unsent, quiet=quiet) as show:
        files = Files(
            paths, start=start, marked=marked, on_bytes=show,
            note=(lambda line: None) if quiet else say,
            threads=threads or usable_cores() // _CORES_A_THREAD, **sizes,
        )  # fmt: skip
        send_all(producer, files, files.resume_hint, timeout)
    return files.reads, files.bases


def _begins(paths: Sequence[str], start: SendMark | None, name: str) -> str:
    """Where a run with --resume begins, for people."""
    if start is None:
        return f"nothing is durable under the name {name}: begins with the first record"
    which = f" (file {start.file + 1} of {len(paths)})" if len(paths) > 1 else ""
    file = f"{shown_name(paths[start.file])}{which}"
    return f"skips the {start.records:,} durable records of {file}, then goes on"


def name_of(folder: str) -> str:
    """The name of the producer that watches a folder, the same in every run."""
    from streamer.watching.ledger import digest_of_text

    name = f"{host.gethostname()}:{os.path.abspath(folder)}"
    if len(name) <= _NAME_CHARACTERS and name.isprintable():
        return name
    return f"{host.gethostname()}:{digest_of_text(name)}"


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
    from streamer.watching import PASSED_OVER
    from streamer.watching.folder import UNTIL, Folder, Hints
    from streamer.watching.ledger import Ledger, ledger_of
    from streamer.watching.watcher import Watcher

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
            say(f"watches {path} as {producer.name}, with {where}: {begins}")
            if book.begins_anew:
                say("the daemon knows nothing of what was sent before: all is sent again")
        # a daemon that is started anew is waited for
        producer.answer_seconds = timeout
        with closing(Hints(path, say)) as hints, signals_noted() as signals:
            watcher = Watcher(
                folder,
                book,
                hints,
                settle,
                sizes=sizes,
                stopped=lambda: signals,
                acknowledged=lambda: producer.reads_acknowledged,
                note=(lambda line: None) if quiet else say,
                fault=say_error,
            )
            again = "the same command goes on from there"
            send_all(
                producer, watcher, lambda reads: again, timeout, heed_seconds=_HEED_SECONDS,
                passed_over=pass_over,
            )  # fmt: skip
            if signals and not quiet:
                reads, bases = f"{watcher.reads:,} reads", f"{watcher.bases:,} bases"
                say(f"stopped: {reads}, {bases} acknowledged; {again}")
    if over:
        raise StreamerError(
            f"passed over {len(over):,} reads that are too large for the daemon; "
            f"{producer.reads_acknowledged:,} are acknowledged"
        )
    if watcher.given_up:
        problem = f"files or folders given up: {len(watcher.given_up)}"
        raise ReportedError(StreamerError(problem))
    return watcher.reads, watcher.bases
