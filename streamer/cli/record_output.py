"""Outputs of records: as they are, alignments in another format, or alignments as FASTQ.

    records        name of the output     what is written
    FASTA, FASTQ   no alignments          the records
    SAM, BAM       of the same format     header and records
    SAM, BAM       .sam, .bam or .cram    header and records, by pysam
    SAM, BAM       any other              FASTQ

CRAM is decoded to SAM. gzip is written as BGZF, compressed where the records are chosen.
"""

import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.errors import DataError, StreamerError, UsageError
from streamer.output.output_file import (
    ALIGNMENTS,
    END_BLOCK,
    OutputFile,
    OutputFiles,
    compression_of,
    packed_blocks,
    suffix_of,
)
from streamer.sequences.record_buffer import RecordForm, RecordText, numbered, taken
from streamer.sequences.sam import fastq_of_line, fastq_of_record

_CR = 0x0D


class RecordOutput:
    """One output; ``prepared`` may run in any thread or process, the rest in the main thread.

    level: of the compression; None for what is fast. marks: reads are named by numbers, followed by
    nothing (NO_MARKS), /1 (FIRSTS), /2 (LASTS) or both in turn (BOTH); None: they keep their names.
    """

    def __init__(
        self, files: OutputFiles, path: str | None, level: int | None, marks: int | None = None
    ) -> None:
        self._path = path or "standard output"
        self._level = level
        self._marks = marks
        self._written = 0
        kind = suffix_of(path)
        self._kind = kind[1:].upper() if kind in ALIGNMENTS else ""
        self._bgzf = kind == ".bam" or compression_of(path or "") in ("gz", "bgzf")
        self._file = files.open(path, plain=self._bgzf, level=level)
        self._converter: _Converter | None = None
        self._begun = False

    def prepared(
        self, texts: Sequence[RecordText], chosen: NDArray[np.bool_], form: RecordForm
    ) -> Any:
        """Return the bytes to write of the chosen records; those of several texts alternate."""
        data: Any
        if not form.aligned:
            data = taken(texts, chosen)
        elif not self._kind:
            data = _as_fastq(texts, chosen, form)
        else:
            data = taken([_with_ends(text, form) for text in texts], chosen)
        packs = self._marks is None and self._bgzf and not self._converts(form)
        return packed_blocks(bytes(data), self._level) if packs else data

    def write(self, data: Any, form: RecordForm) -> None:
        """Write what ``prepared`` returned."""
        if not self._begun:
            self._begin(form)
        if self._marks is not None:
            text, self._written = numbered(data, form.name != "FASTA", self._written, self._marks)
            data = packed_blocks(text.tobytes(), self._level) if self._bgzf else text
        (self._converter or self._file).write(memoryview(data))

    def end(self) -> None:
        """Write what ends the file."""
        if self._converter is not None:
            self._converter.end()
        elif self._bgzf:
            self._file.write(END_BLOCK)

    def stop(self) -> None:
        """Stop a thread that still writes; the file is of no use then."""
        if self._converter is not None:
            self._converter.stop()

    def _converts(self, form: RecordForm) -> bool:
        return self._kind not in ("", form.name)

    def _begin(self, form: RecordForm) -> None:
        self._begun = True
        if not self._kind:
            return
        if not form.aligned:
            raise DataError(
                f"{form.name} is not written as {self._kind}: give it a name for {form.name}",
                file=self._path,
            )
        if self._converts(form):
            self._converter = _Converter(self._file, self._path, self._kind, self._level)
            self._converter.write(form.header)
        else:
            header = form.header
            self._file.write(packed_blocks(header, self._level) if self._bgzf else header)


def _with_ends(text: RecordText, form: RecordForm) -> RecordText:
    """Return records with their line ends, which those of SAM lack."""
    if form.name == "BAM" or not len(text.places):
        return text
    joined = text.joined()
    places = joined.places.copy()
    places[:, 2] += 1 + (joined.spans[0].text[places[:, 2]] == _CR)
    return joined._replace(places=places)


def _as_fastq(texts: Sequence[RecordText], chosen: NDArray[np.bool_], form: RecordForm) -> bytes:
    as_fastq = fastq_of_record if form.name == "BAM" else fastq_of_line
    reads = []
    for text in texts:
        (span,), places = text.joined()
        data, rows = span.text.data, places[chosen][:, ::2].tolist()
        reads.append([as_fastq(bytes(data[begin:end])) for begin, end in rows])
    return b"".join(chain.from_iterable(zip(*reads, strict=True)))


class _Converter:
    """Writes records in another format: a thread with pysam reads them from a pipe.

    CRAM refers to no reference, so that it keeps every tag and can be read anywhere.
    """

    def __init__(self, file: OutputFile, path: str, kind: str, level: int | None) -> None:
        try:
            import pysam
        except ImportError:
            raise UsageError(
                f"{path}: other alignments are converted by pysam: pip install '.[cram]' in a clone"
            ) from None
        pysam.set_verbosity(0)
        self._path = path
        self._error: BaseException | None = None
        reading, writing = os.pipe()
        self._pipe = open(writing, "wb", buffering=0)
        mode = {"SAM": "w", "BAM": "wb", "CRAM": "wc"}[kind]
        if kind != "SAM" and level is not None:
            mode += str(level)
        options = ["no_ref=1"] if kind == "CRAM" else []

        def run() -> None:
            try:
                with (
                    open(reading, "rb") as pipe,
                    pysam.AlignmentFile(pipe, "r", check_sq=False) as records,
                    pysam.AlignmentFile(
                        file.raw, mode, template=records, format_options=options
                    ) as out,
                ):
                    for record in records.fetch(until_eof=True):
                        out.write(record)
            except BaseException as error:
                self._error = error

        self._thread = threading.Thread(target=run, name="converter", daemon=True)
        self._thread.start()

    def write(self, data: bytes | memoryview) -> None:
        """Hand over whole records, or the header."""
        rest = memoryview(data)
        try:
            while len(rest):
                rest = rest[self._pipe.write(rest) :]
        except BrokenPipeError:
            self.end()
            raise

    def end(self) -> None:
        """Wait until everything is written; StreamerError if it could not be."""
        self.stop()
        if self._error is not None:
            cause = getattr(self._error, "strerror", None) or self._error
            raise StreamerError(f"{self._path}: cannot write: {cause}") from self._error

    def stop(self) -> None:
        """End the thread."""
        with suppress(OSError):
            self._pipe.close()
        self._thread.join()
