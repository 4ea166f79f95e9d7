"""Open, decompress and recognize a sequence file by content; yield records in parts.

``bz2_xz`` decompresses, except zstd, which xopen does. FASTA comes in parts (``fasta``), since a
record may be a chromosome; FASTQ (``fastq``) and BAM (``bam``) records are whole.
"""

from __future__ import annotations

import codecs
import io
import itertools
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from xopen import xopen

from streamer.errors import DataError
from streamer.sequences.bgzf import Watched
from streamer.sequences.bz2_xz import COMPRESSIONS, Members, TrailingBytesError
from streamer.sequences.read_batch import name_of
from streamer.sequences.source import _PROBLEMS, _READ_ERRORS, _UTF_16
from streamer.sequences.text_window import FormatError
from tests.reference.reader.bam import MAGIC, bam_records
from tests.reference.reader.fasta import Readable, fasta_parts
from tests.reference.reader.fastq import fastq_records

STDIN = "-"

Part = tuple[str | None, bytes]
"""The first header word of a record that begins, or None if one continues; and letters."""

_COMPRESSIONS = (
    (b"\x1f\x8b", "gz"),
    (b"BZh", "bz2"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"\x28\xb5\x2f\xfd", "zst"),
    *((bytes([number]) + b"\x2a\x4d\x18", "zst") for number in range(0x50, 0x60)),
)
_LONGEST_MAGIC = 6
_BUFFER_BYTES = 128 * 1024


def shown_name(path: str) -> str:
    """The name of an input in messages."""
    return "<stdin>" if path == STDIN else path


class SequenceSource:
    """One input; ``stack`` closes what it opens."""

    def __init__(self, path: str, stack: ExitStack) -> None:
        self.path = path
        self.shown = shown_name(path)
        self._stack = stack
        self._raw: Any = None
        self._record = 0
        self.whole = False
        """Whether every part is a whole record."""

    def parts(self) -> Iterator[Part]:
        """The records in order, each as one part or several; DataError for what cannot be read."""
        name = None
        try:
            yield from self._parts()
            return
        except FormatError as error:
            problem, name = str(error), error.name
            self._record = max(self._record, 1)
        except _READ_ERRORS as error:
            problem = _PROBLEMS.get(type(error)) or (
                f"cannot be read: {str(error) or type(error).__name__}"
            )
        known = name if name and name.isprintable() else None
        raise DataError(problem, file=self.shown, record=self._record or None, name=known)

    def _parts(self) -> Iterator[Part]:
        if self.path == STDIN:
            self._raw = sys.stdin.buffer
        else:
            self._raw = self._stack.enter_context(open(self.path, "rb"))
        watched = Watched(self._raw)
        magic, packed = _look_ahead(watched, blanks=False)
        compression = next((name for start, name in _COMPRESSIONS if magic.startswith(start)), None)
        opened: Any = packed
        if compression in COMPRESSIONS:
            opened = _ToTheEnd(packed, compression, watched)
        elif compression is not None:
            # zstd in this process: errors of another process are indistinguishable
            threads = 1 if compression == "gz" else 0
            opened = self._stack.enter_context(
                xopen(_buffered(packed), "rb", format=compression, threads=threads)
            )
        start, plain = _look_ahead(opened, blanks=True)
        if start[:2] in _UTF_16:
            problem = "is UTF-16 text: convert it with iconv -f UTF-16 -t UTF-8"
            raise DataError(problem, file=self.shown)
        if start[:1] in (b">", b"#"):
            yield from self._of_fasta(plain)
        elif start.startswith(MAGIC):
            yield from self._of_bam(_buffered(plain), watched)
        elif start[:1] == b"@":
            yield from self._of_fastq(plain)
        elif start:
            problem = "not a FASTA, FASTQ, SAM, BAM or CRAM file"
            raise DataError(problem, file=self.shown)

    def _of_fastq(self, plain: Readable) -> Iterator[Part]:
        self.whole = True
        self._record = 1
        for record in fastq_records(plain):
            yield record
            self._record += 1

    def _of_bam(self, plain: io.BufferedReader, watched: Watched) -> Iterator[Part]:
        self.whole = True
        records = bam_records(plain)
        for self._record in itertools.count(1):
            record = next(records, None)
            if record is None:
                break
            yield name_of(record[0]), record[1]
        # BGZF FASTQ writers may omit the end block, BAM writers do not
        if watched.lacks_end_block():
            problem = f"truncated after {self._record - 1} records: BGZF's end block is missing"
            raise FormatError(problem)

    def _of_fasta(self, plain: Readable) -> Iterator[Part]:
        for header, letters in fasta_parts(plain):
            if header is None:
                yield None, letters
            else:
                self._record += 1
                yield name_of(header), letters


class _ToTheEnd(Members):
    """Members, then nothing where other bytes follow them; in BGZF only after its end block."""

    def __init__(self, packed: Readable, compression: str, watched: Watched) -> None:
        super().__init__(packed, compression)
        self._watched = watched

    def read1(self, size: int = _BUFFER_BYTES, /) -> bytes:
        """At most ``size`` bytes; none at the end."""
        try:
            return super().read1(size)
        except TrailingBytesError as error:
            if self._watched.bgzf and not error.behind_empty:
                raise
            return b""


class _Ahead(io.RawIOBase):
    """A stream whose beginning, ``start``, has already been read."""

    def __init__(self, start: bytes, rest: Readable) -> None:
        self._start = start
        self._rest = rest

    def readable(self) -> bool:
        return True

    def read1(self, size: int = _BUFFER_BYTES, /) -> bytes:
        """Up to ``size`` bytes, empty at the end, without the copies of a buffered reader."""
        if not self._start:
            return self._rest.read1(size)
        data, self._start = self._start[:size], self._start[size:]
        return data

    def readinto(self, buffer: Any) -> int:
        data = self.read1(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def _buffered(stream: _Ahead) -> io.BufferedReader:
    return io.BufferedReader(stream, _BUFFER_BYTES)


def _look_ahead(file: Readable, *, blanks: bool) -> tuple[bytes, _Ahead]:
    """The first bytes of a file, with ``blanks`` those after whitespace; and the whole file.

    Waits for enough bytes to recognize the format: a pipe may deliver them one by one.
    """
    read: list[bytes] = []
    start = b""
    while len(start) < _LONGEST_MAGIC and (piece := file.read1(io.DEFAULT_BUFFER_SIZE)):
        read.append(piece)
        start += piece
        if blanks:
            if start.startswith(codecs.BOM_UTF8):
                read = [start := start[3:]]
            start = start.lstrip()
            if start[:1] in (b">", b"#", b"@"):
                break
    return start, _Ahead(b"".join(read), file)
