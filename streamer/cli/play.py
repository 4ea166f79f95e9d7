"""``streamer play``: a run of real reads, live, into the socket of a daemon or into files."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer

from streamer.cli import daemon_options
from streamer.cli.choices import SENT_BASES, SENT_READS, QuietOption, check_files, say
from streamer.cli.daemon_options import ConfigOption, KeysOption
from streamer.errors import DataError, UsageError

if TYPE_CHECKING:
    from streamer.client.producer import Piece
    from streamer.playing.run_folder import Played, RawRead
    from streamer.protocol.keys import ClientKeys

_BATCH_SECONDS = 1.0  # between two batches
_POLL_SECONDS = 0.05
_FAST_SECONDS = 60.0  # seconds of a run in a batch, at unlimited speed


def play(
    reads: Annotated[
        list[str],
        typer.Argument(metavar="READS", help="FASTQ, plain or compressed; - is standard input."),
    ],
    to: Annotated[
        str | None, typer.Option("--to", help="Send them to this ingest endpoint of a daemon.")
    ] = None,
    config: ConfigOption = None,
    keys: KeysOption = None,
    folder: Annotated[
        str | None,
        typer.Option("--folder", metavar="DIR", help="Write them there, as MinKNOW does."),
    ] = None,
    speed: Annotated[
        float,
        typer.Option(min=0.0, help="Times as fast as a sequencer; 0 is as fast as possible."),
    ] = 1.0,
    channels: Annotated[
        int, typer.Option(min=1, help="Channels, of 400 bases a second each.")
    ] = 512,
    seed: Annotated[int, typer.Option(help="Seed of times and names.")] = 1,
    plain: Annotated[
        bool, typer.Option("--plain", help="Write FASTQ that is not compressed, as dorado does.")
    ] = False,
    file_reads: Annotated[int, typer.Option(min=1, help="Reads in a file, at most.")] = 4000,
    file_seconds: Annotated[
        float, typer.Option(min=0.1, help="Seconds of the run in a file, at most.")
    ] = 3600.0,
    name: Annotated[
        str | None, typer.Option("--name", help="Name of the producer, with --to.")
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=0.1, help="Give up after this many seconds without progress.")
    ] = 300.0,
    quiet: QuietOption = False,
) -> None:
    """Play a run: real reads, each when a sequencer would have it, in the same order each time.

    Each channel waits for a molecule, then reads it; equal seeds give the same run. Records stay
    as they are, byte for byte. A file is FLOWCELL_pass_BARCODE_RUN_N.fastq.gz in fastq_pass, with
    the barcode of the headers or of the folder that the reads come from; it grows, and is complete
    after --file-reads reads or --file-seconds. final_summary_*.txt ends the run. Ctrl-C completes
    the files that have been begun and writes no final summary.
    """
    from streamer.cli.streams import progress
    from streamer.sequences.source import size_of_files

    if (folder is None) == (to is None and config is None):
        raise UsageError("name either an endpoint (--to) or a folder (--folder)")
    check_files(reads, None)
    with progress("playing", size_of_files(reads), quiet=quiet) as show:
        run = _Playback(reads, speed, channels, seed, show)
        if folder is None:
            endpoint = daemon_options.endpoint_of("ingest", to, config)
            key = daemon_options.keys_of(keys, config, endpoint)
            run.send(endpoint, name, timeout, key)
            done = "acknowledged"
        else:
            done = run.write(folder, plain, file_reads, file_seconds)
    if not quiet:
        taken = f"{run.played:.1f} s of the run in {time.monotonic() - run.begun:.1f} s"
        say(f"{run.reads:,} reads, {run.bases:,} bases {done}, {taken}")


class _Playback:
    """Reads released over time; ``reads``, ``bases`` and ``played`` seconds are those so far."""

    def __init__(
        self,
        paths: list[str],
        speed: float,
        channels: int,
        seed: int,
        on_bytes: Callable[[int], None],
    ) -> None:
        from streamer.playing.run_folder import group_played, played, raw_reads

        self.reads = self.bases = 0
        self.played = 0.0
        self.begun = time.monotonic()
        self._speed = speed
        self._seed = seed
        self._seconds = speed * _BATCH_SECONDS or _FAST_SECONDS
        self._fault: DataError | None = None
        run = played(self._good(raw_reads(paths, on_bytes)), channels, seed)
        self._groups = group_played(run, self._seconds, SENT_BASES)

    def _good(self, reads: Iterator[RawRead]) -> Iterator[RawRead]:
        """The reads before the first fault, which is raised once they have been played."""
        try:
            yield from reads
        except DataError as error:
            self._fault = error

    def _live(self, stopped: Callable[[], object] = lambda: False) -> Iterator[list[Played]]:
        """Complete reads, in groups, each a little after its last read."""
        for group in self._groups:
            due = self.begun
            if self._speed:
                due += (group[-1].end // self._seconds + 1) * _BATCH_SECONDS
            while not stopped() and (remaining := due - time.monotonic()) > 0:
                time.sleep(min(remaining, _POLL_SECONDS))
            if stopped():
                return
            self.reads += len(group)
            self.bases += sum(played.read.bases for played in group)
            self.played = group[-1].end
            yield group
        if self._fault is not None:
            raise self._fault

    def __iter__(self) -> Iterator[Piece]:
        """The reads to send."""
        from streamer.client.producer import Piece
        from streamer.sequences.files import read_batches

        for group in self._live():
            for path, ones in groupby(group, key=lambda played: played.read.path):
                text = io.BytesIO(b"".join(played.read.text for played in ones))
                batches = read_batches(
                    [path],
                    batch_bases=SENT_BASES,
                    batch_reads=SENT_READS,
                    opened=text,
                    context=True,
                )
                try:
                    yield from map(Piece, batches)
                except DataError as error:
                    # the record's number is not that in the file
                    read = f"read {error.name}: " if error.name else ""
                    raise DataError(read + error.problem, file=error.file) from None

    def resume_hint(self, reads: int) -> str:
        """How far the run has come, for people."""
        return f"the run has come to its second {self.played:.1f}"

    def send(
        self, endpoint: str, name: str | None, timeout: float, keys: ClientKeys | None
    ) -> None:
        """Play the run into the socket."""
        from streamer.cli.send_files import send_all
        from streamer.client.producer import Producer

        answer_seconds = min(daemon_options.ANSWER_SECONDS, timeout)
        with Producer(endpoint, name=name, answer_seconds=answer_seconds, keys=keys) as producer:
            producer.connect(timeout=timeout)
            self.begun = time.monotonic()
            send_all(producer, self, self.resume_hint, timeout)

    def write(self, folder: str, plain: bool, file_reads: int, file_seconds: float) -> str:
        """Play the run into files; returns a line about them."""
        from streamer.cli.streams import signals_noted
        from streamer.playing.run_folder import RunFolder

        files = RunFolder(
            folder, self._seed, plain=plain, file_reads=file_reads, file_seconds=file_seconds
        )
        with signals_noted() as signals:
            try:
                for group in self._live(lambda: signals):
                    for played in group:
                        files.add(played)
                    files.flush(self.played)
            finally:
                files.close()
            if not signals:
                files.end()
            else:
                say(f"stopped: files complete: {files.files}; there is no final summary")
        return f"in {files.files} file{'s' if files.files != 1 else ''}"
