"""``streamer send``: every read of the files acknowledged, or said how far it came."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from streamer.cli.choices import say
from streamer.client.errors import (
    DaemonError,
    DaemonSilentError,
    LostBatchesError,
    RefusedError,
    StalledError,
)
from streamer.client.producer import Producer
from streamer.sequences.files import read_batches
from streamer.sequences.prefetch import prefetched
from streamer.sequences.read_batch import ReadBatch
from streamer.sequences.source import shown_name
from trie.cpu.interrupts import interrupt_in


class Files:
    """The reads of several files, in order, and where each of them stands.

    ``reads`` and ``bases`` count what has been read. ``on_bytes`` is as in ``read_batches``.
    """

    def __init__(
        self,
        paths: Sequence[str],
        *,
        batch_bases: int,
        batch_reads: int,
        on_bytes: Callable[[int], None],
    ) -> None:
        self.reads = self.bases = 0
        self._paths = paths
        self._batch_bases = batch_bases
        self._batch_reads = batch_reads
        self._on_bytes = on_bytes
        self._bytes = self._bytes_before = 0
        # the reads before each file that has been begun, at the end of all those of all files
        self._before: list[int] = []

    def __iter__(self) -> Iterator[ReadBatch]:
        """Batches of reads of one file each; DataError as in ``read_batches``."""
        for path in self._paths:
            self._before.append(self.reads)
            self._bytes_before = self._bytes
            for batch in read_batches(
                [path],
                batch_bases=self._batch_bases,
                batch_reads=self._batch_reads,
                on_bytes=self._count_bytes,
            ):
                self.reads += len(batch)
                self.bases += int(batch.bases.size)
                yield batch
        self._before.append(self.reads)

    def _count_bytes(self, read: int) -> None:
        self._bytes = self._bytes_before + read
        self._on_bytes(self._bytes)

    def behind(self, reads: int) -> str:
        """The file and the 1-based record that follow the first ``reads``, for people."""
        before = self._before.copy() or [0]
        at = max(number for number, start in enumerate(before) if start <= reads)
        if at == len(self._paths):
            return "nothing is left to send"
        which = f" (file {at + 1} of {len(self._paths)})" if len(self._paths) > 1 else ""
        record = reads - before[at] + 1
        return f"go on from {shown_name(self._paths[at])}{which}, record {record}"


def send_all(producer: Producer, files: Files, timeout: float) -> None:
    """Send all reads and wait for their acknowledgement; an error that ends it comes with a line.

    timeout: seconds without any progress. The line, on standard error, says how far it came.
    """
    try:
        for batch in prefetched(files, idle=producer.heed):
            producer.send(batch, timeout=timeout)
        producer.flush(timeout=timeout)
    except BaseException as error:
        answered = False
        try:
            answered = _await_answers(producer, error, timeout)
        finally:
            with suppress(OSError):
                say(_how_far(producer, files, answered))
        raise


def _await_answers(producer: Producer, error: BaseException, timeout: float) -> bool:
    """Wait for the answers to what has gone out; whether they have come."""
    if isinstance(error, DaemonSilentError):
        return False
    if isinstance(error, RefusedError | LostBatchesError):
        # the daemon takes nothing that went out after what it refused; if it failed, it loses some
        return producer.state != "failed"
    if isinstance(error, StalledError) or interrupt_in(error):
        with suppress(RefusedError, LostBatchesError):
            try:
                producer.settle(timeout=timeout)
            except DaemonSilentError:
                return False
        return True
    # the reads before the fault are good: they arrive
    try:
        producer.flush(timeout=timeout)
    except DaemonError as worse:
        _await_answers(producer, worse, timeout)
        raise
    return True


def _how_far(producer: Producer, files: Files, answered: bool) -> str:
    reads, sent = producer.reads_acknowledged, producer.reads_sent
    text = f"{reads:,} of {sent:,} reads sent are acknowledged"
    if producer.last_acknowledged is not None:
        text += f", the last is {producer.last_acknowledged}"
    if not answered:
        matched = producer.reads_matched
        text += f" ({matched:,} are matched, {sent - reads:,} have no answer)"
    return f"{text}; {files.behind(reads)}"
