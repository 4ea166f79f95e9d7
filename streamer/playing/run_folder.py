"""Write the files of a run as MinKNOW names, fills and completes them.

    fastq_pass/[BARCODE/]FLOWCELL_pass_[BARCODE_]PROTOCOL_RUN_NUMBER.fastq.gz
    sequencing_summary_FLOWCELL_PROTOCOL_RUN.txt
    final_summary_FLOWCELL_PROTOCOL_RUN.txt       once all other files are complete

A file is complete once it has a given number of reads, or its first read reaches a given age.
Nothing in the files depends on the clock: equal runs give equal files.

Simulate when each read of a run is complete: channels read one molecule after another.

A channel waits for a molecule, then reads it base by base. Both times come from a seeded generator,
so equal seeds give equal runs. Times are in seconds of the run.

FASTQ records as bytes, so that playback sends exactly what was sequenced.
"""

import heapq
import math
import random
import sys
import uuid
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from xopen import xopen

from streamer.errors import DataError
from streamer.sequences.context import ReadContext, if_barcode
from streamer.sequences.read_batch import name_of
from streamer.sequences.source import STDIN, shown_name

_TOGETHER = 256


class RawRead(NamedTuple):
    """A record: ``text`` holds its four lines with their ends. path: of its file.

    barcode: named as in folders, empty if unknown.
    """

    path: str
    text: bytes
    bases: int
    barcode: str = ""

    @property
    def header(self) -> bytes:
        """The first line without ``@``, with its end."""
        return self.text[1 : self.text.index(b"\n") + 1]

    @property
    def name(self) -> str:
        """The first word of the header."""
        return name_of(self.header.rstrip(b"\r\n"))


def raw_reads(paths: Iterable[str], on_bytes: Callable[[int], None]) -> Iterator[RawRead]:
    """Yield the records of FASTQ files, plain or compressed, in order.

    A last line without a line end gets one. Raises DataError, with the position, for anything but
    FASTQ. on_bytes: called with the number of (compressed) bytes read from the files so far, if
    known.
    """
    before = 0
    for path in paths:
        record: int | None = 1
        try:
            with ExitStack() as stack:
                file: Any = sys.stdin.buffer
                if path != STDIN:
                    file = stack.enter_context(open(path, "rb"))
                for record, read in enumerate(_with_barcodes(_of_file(path, file)), 2):  # noqa: B007 (of the next)
                    yield read
                    if file.seekable():
                        on_bytes(before + file.tell())
                before += file.tell() if file.seekable() else 0
        except EOFError:
            problem, record = "the compressed stream is truncated", None
        except OSError as error:
            problem = (error.strerror or str(error)).lower()
        except Exception as error:  # decompressors have exception types of their own
            problem = str(error)
        else:
            continue
        raise DataError(problem, file=shown_name(path), record=record)


def _with_barcodes(reads: Iterator[RawRead]) -> Iterator[RawRead]:
    """Yield reads with barcodes, a few at a time; those before a fault come first."""
    fault = None
    while fault is None:
        group: list[RawRead] = []
        try:
            group.extend(islice(reads, _TOGETHER))
        except Exception as error:
            fault = error
        yield from _named(group)
        if fault is None and len(group) < _TOGETHER:
            return
    raise fault


def _named(group: list[RawRead]) -> Iterator[RawRead]:
    headers = [read.header.rstrip(b"\r\n") for read in group]
    if not headers:
        return
    stops = np.cumsum([len(header) for header in headers])
    text = np.frombuffer(b"".join(headers) + b"\n", np.uint8)
    firsts = np.append(0, stops[:-1])
    context = ReadContext.of_lines(text, firsts, stops, group[0].path)
    for read, barcode in zip(group, context.barcode.of(if_barcode).texts(), strict=True):
        yield read._replace(barcode=barcode or "")


def _of_file(path: str, raw: Any) -> Iterator[RawRead]:
    # in this process: an interrupt would reach a child process too
    file: Any = xopen(raw, "rb", threads=0)
    while header := file.readline():
        if not header.strip():
            continue
        if not header.startswith(b"@"):
            raise ValueError(
                "not FASTQ, which runs are played from: the record does not begin with '@'"
            )
        letters, plus, qualities = (file.readline() for _ in range(3))
        bases = len(letters.rstrip(b"\r\n"))
        if not plus.startswith(b"+") or bases != len(qualities.rstrip(b"\r\n")):
            raise ValueError(
                "not valid FASTQ: expected letters, '+' and as many qualities, a line each"
            )
        end = b"" if qualities.endswith(b"\n") else b"\n"
        yield RawRead(path, b"".join((header, letters, plus, qualities, end)), bases)


BASES_A_SECOND = 400.0
"""Bases per second of a channel; that of a read differs by up to the fraction ``_SPREAD``."""

_SPREAD = 0.1
_WAIT_SECONDS = 2.0  # average wait for a molecule


class Played(NamedTuple):
    """A read on its channel (from 1), with the seconds at which it began and was complete."""

    end: float
    channel: int
    start: float
    read: RawRead


def played(reads: Iterable[RawRead], channels: int, seed: int) -> Iterator[Played]:
    """Yield the reads in order of completion; each free channel takes the next one."""
    chance = random.Random(f"channels {seed}")
    under_way: list[Played] = []
    for read in reads:
        channel, free = len(under_way) + 1, 0.0
        if channel > channels:
            done = heapq.heappop(under_way)
            yield done
            channel, free = done.channel, done.end
        start = free - _WAIT_SECONDS * math.log(1 - chance.random())
        speed = BASES_A_SECOND * (1 + _SPREAD * (2 * chance.random() - 1))
        heapq.heappush(under_way, Played(start + read.bases / speed, channel, start, read))
    while under_way:
        yield heapq.heappop(under_way)


def group_played(run: Iterable[Played], seconds: float, bases: int) -> Iterator[list[Played]]:
    """Group reads completed within the same ``seconds``, in parts of up to ``bases`` bases."""
    group: list[Played] = []
    total = 0
    for item in run:
        if group and (total >= bases or item.end // seconds > group[-1].end // seconds):
            yield group
            group, total = [], 0
        group.append(item)
        total += item.read.bases
    if group:
        yield group


_BEGUN = datetime(2025, 1, 1, tzinfo=UTC)
_PLAIN_BYTES = 8192  # buffer size of a writer that is not flushed explicitly
_GZIP = 16 + zlib.MAX_WBITS


class _GrowingFile:
    """A growing FASTQ file; compressed data goes out in blocks, ``close`` ends the gzip stream."""

    def __init__(self, path: Path, begun: float, *, plain: bool) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.name = path.name
        self.begun = begun
        self.reads = 0
        self._packer = None if plain else zlib.compressobj(1, zlib.DEFLATED, _GZIP)
        self._file = open(path, "xb", buffering=_PLAIN_BYTES if plain else 0)

    def add(self, text: bytes) -> None:
        self.reads += 1
        self._file.write(self._packer.compress(text) if self._packer else text)

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        if self._packer:
            self._file.write(self._packer.flush())
        self._file.close()


class RunFolder:
    """Writes a run to a folder; raises OSError if a file cannot be written or exists already.

    file_reads, file_seconds: limits per file. plain: do not compress FASTQ.
    """

    def __init__(
        self, folder: str, seed: int, *, plain: bool, file_reads: int, file_seconds: float
    ) -> None:
        chance = random.Random(f"names {seed}")
        run, protocol = (uuid.UUID(int=chance.getrandbits(128), version=4) for _ in range(2))
        self.files = 0
        self._folder = Path(folder)
        self._flow_cell = f"FPL{chance.randrange(100_000):05}"
        self._run, self._protocol = str(run), str(protocol)
        self._stem = f"{self._flow_cell}_{self._protocol[:8]}_{self._run[:8]}"
        self._plain = plain
        self._file_reads = file_reads
        self._file_seconds = file_seconds
        self._numbers = Counter[str]()
        self._open: dict[str, _GrowingFile] = {}
        self._end = 0.0
        self._folder.mkdir(parents=True, exist_ok=True)
        self._summary = open(self._folder / f"sequencing_summary_{self._stem}.txt", "x")
        self._summary.write("\t".join(_COLUMNS) + "\n")

    def add(self, new: Played) -> None:
        """Write a read that is complete."""
        barcode = new.read.barcode
        file = self._open.get(barcode)
        if file and (file.reads >= self._file_reads or self._is_old(file, new.end)):
            self._close(barcode)
            file = None
        if file is None:
            file = self._open[barcode] = self._begin(barcode, new.end)
        file.add(new.read.text)
        self._end = new.end
        self._summary.write("\t".join(map(str, self._row(new, file.name, barcode))) + "\n")

    def flush(self, now: float) -> None:
        """Flush everything that is not inside a compressor; complete files that are old enough."""
        for barcode in [b for b, file in self._open.items() if self._is_old(file, now)]:
            self._close(barcode)
        for file in self._open.values():
            file.flush()
        self._summary.flush()

    def close(self) -> None:
        """Complete all open files."""
        for barcode in list(self._open):
            self._close(barcode)
        self._summary.close()

    def end(self) -> None:
        """The run is over: complete everything, then write the final summary."""
        self.close()
        stopped = (_BEGUN + timedelta(seconds=self._end)).isoformat()
        lines = {
            "instrument": "streamer-play",
            "flow_cell_id": self._flow_cell,
            "protocol_run_id": self._protocol,
            "acquisition_run_id": self._run,
            "started": _BEGUN.isoformat(),
            "acquisition_stopped": stopped,
            "processing_stopped": stopped,
            "basecalling_enabled": 1,
            "sequencing_summary_file": f"sequencing_summary_{self._stem}.txt",
            "fastq_files_in_final_dest": self.files,
            "fastq_files_in_fallback": 0,
        }
        with open(self._folder / f"final_summary_{self._stem}.txt", "x") as file:
            file.writelines(f"{key}={value}\n" for key, value in lines.items())

    def _is_old(self, file: _GrowingFile, now: float) -> bool:
        return now - file.begun >= self._file_seconds

    def _begin(self, barcode: str, now: float) -> _GrowingFile:
        parts = [self._flow_cell, "pass", barcode, self._protocol[:8], self._run[:8]]
        number = self._numbers[barcode]
        self._numbers[barcode] += 1
        name = "_".join(part for part in [*parts, str(number)] if part)
        suffix = ".fastq" if self._plain else ".fastq.gz"
        path = self._folder / "fastq_pass" / barcode / (name + suffix)
        file = _GrowingFile(path, now, plain=self._plain)
        self.files += 1
        return file

    def _close(self, barcode: str) -> None:
        self._open.pop(barcode).close()

    def _row(self, new: Played, file: str, barcode: str) -> list[object]:
        seconds = f"{new.start:.6f}", f"{new.end - new.start:.6f}"
        quality = _mean_quality(new.read.text.rsplit(b"\n", 2)[-2].rstrip(b"\r"))
        passes = "TRUE"
        facts = [file, new.read.name, self._run, new.channel, *seconds, passes, new.read.bases]
        return [*facts, f"{quality:.6f}", barcode or "."]


_COLUMNS = (
    "filename_fastq", "read_id", "run_id", "channel", "start_time", "duration", "passes_filtering",
    "sequence_length_template", "mean_qscore_template", "barcode_arrangement",
)  # fmt: skip


def _mean_quality(qualities: bytes) -> float:
    """Return the quality that corresponds to the mean error probability."""
    if not qualities:
        return 0.0
    values = np.frombuffer(qualities, np.uint8).astype(np.float64) - 33
    return float(-10 * np.log10(np.mean(10 ** (-values / 10))))
