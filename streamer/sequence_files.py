"""FASTA, FASTQ and unaligned BAM files as batches of reads.

The format and the compression (gzip, bzip2, xz, zstd or none) are told apart by content, ``-`` is
standard input. Reading and decompressing is dnaio's and xopen's work; this module adds batches and
errors that name file, record and position.
"""

from __future__ import annotations

import io
import itertools
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import Any, BinaryIO

import dnaio
from xopen import xopen

from streamer.errors import DataError
from streamer.reads import BadReadError, ReadBatch, unprintable

STDIN = "-"
BATCH_BASES = 4_000_000
BATCH_READS = 100_000

_COMPRESSIONS = (
    (b"\x1f\x8b", "gz"),
    (b"BZh", "bz2"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"\x28\xb5\x2f\xfd", "zst"),
)
_LONGEST_MAGIC = 6
_BUFFER_BYTES = 128 * 1024


def shown_name(path: str) -> str:
    """How messages name an input."""
    return "<stdin>" if path == STDIN else path


def read_batches(
    paths: Iterable[str],
    *,
    batch_bases: int = BATCH_BASES,
    batch_reads: int = BATCH_READS,
    on_bytes: Callable[[int], None] | None = None,
) -> Iterator[ReadBatch]:
    """All reads of the files, in order, in batches that end once they hold ``batch_bases`` bases.

    A batch holds reads of one file, so that its errors have a place. The reads before a faulty
    record are yielded before DataError is raised, so that nothing that was read is lost.
    ``on_bytes`` is told how many (compressed) bytes of the files have been read so far.
    """
    done = 0
    for path in paths:
        with ExitStack() as stack:
            source = _Source(path, stack)
            for batch in _batches_of_file(source, batch_bases, batch_reads):
                if on_bytes is not None:
                    on_bytes(done + source.bytes_read())
                yield batch
            done += source.bytes_read()
        if on_bytes is not None:
            on_bytes(done)


def read_letters(path: str) -> Iterator[tuple[str, str]]:
    """(first word of the header, letters as they stand) of every record; DataError as above."""
    with ExitStack() as stack:
        yield from _records(_Source(path, stack))


def check_exist(paths: Iterable[str]) -> None:
    """DataError for the first input that is not there, before work is done for the others."""
    for path in paths:
        if path != STDIN and not os.path.exists(path):
            problem = "no such file"
            raise DataError(problem, file=path)


def size_of_files(paths: Iterable[str]) -> int | None:
    """Bytes in all files together; None if one has no size (a pipe, standard input)."""
    sizes = []
    for path in paths:
        try:
            status = os.stat(path)
        except OSError:
            return None
        if not stat.S_ISREG(status.st_mode):
            return None
        sizes.append(status.st_size)
    return sum(sizes)


def _batches_of_file(source: _Source, batch_bases: int, batch_reads: int) -> Iterator[ReadBatch]:
    path = source.path
    names: list[str] = []
    sequences: list[str] = []
    size = 0
    first = 1
    try:
        for name, sequence in _records(source):
            names.append(name)
            sequences.append(sequence)
            size += len(sequence)
            if size >= batch_bases or len(names) >= batch_reads:
                yield from _encoded(path, first, names, sequences)
                first += len(names)
                names, sequences, size = [], [], 0
    except DataError:
        yield from _encoded(path, first, names, sequences)
        raise
    yield from _encoded(path, first, names, sequences)


def _encoded(path: str, first: int, names: list[str], sequences: list[str]) -> Iterator[ReadBatch]:
    if not names:
        return
    bad = unprintable(names)
    if bad is not None:
        yield from _encoded(path, first, names[:bad], sequences[:bad])
        problem = "the name holds control characters"
        raise DataError(problem, file=shown_name(path), record=first + bad)
    try:
        batch = ReadBatch.from_sequences(names, sequences)
    except BadReadError as error:
        if error.index:
            yield ReadBatch.from_sequences(names[: error.index], sequences[: error.index])
        raise DataError(
            str(error),
            file=shown_name(path),
            record=first + error.index,
            name=names[error.index],
            position=error.position + 1,
        ) from None
    yield batch


def _records(source: _Source) -> Iterator[tuple[str, str]]:
    """(first word of the header, letters) of every record; DataError for what cannot be read."""
    record_number: int | None = None
    try:
        reader = source.records()
        for record_number in itertools.count(1):  # noqa: B007 (read where an error is caught)
            record = next(reader, None)
            if record is None:
                return
            yield record.id, record.sequence
    except dnaio.FileFormatError as error:
        line = "" if error.line is None else f" (line {error.line + 1})"
        problem = f"not valid {error.format}{line}: {error.message}"
        # the first record is read when the file is opened
        record_number = record_number or 1
    except EOFError:
        problem = "the compressed stream does not end well: truncated, or other bytes follow it"
    except UnicodeError:
        problem = "holds a byte that is not text"
    except FileNotFoundError:
        problem = "no such file"
    except IsADirectoryError:
        problem = "is a directory, not a sequence file"
    except PermissionError:
        problem = "permission denied"
    except NotImplementedError:
        # dnaio's BAM reader met a record with the flags of something else
        problem = "is no unaligned BAM of single reads: convert it with samtools fastq"
    except _READ_ERRORS as error:
        problem = f"cannot be read: {str(error) or type(error).__name__}"
    raise DataError(problem, file=source.shown, record=record_number)


def _read_errors() -> tuple[type[Exception], ...]:
    """What the decompressors and the BAM reader raise for damaged content."""
    import lzma
    import zlib

    errors: list[Any] = [OSError, ValueError, zlib.error, lzma.LZMAError]
    try:
        from isal.isal_zlib import error as isal_error

        errors.append(isal_error)
    except ImportError:
        pass
    if sys.version_info >= (3, 14):
        from compression.zstd import ZstdError
    else:
        from backports.zstd import ZstdError
    errors.append(ZstdError)
    return tuple(errors)


_READ_ERRORS = _read_errors()


class _Source:
    """One input: opened, decompressed and told apart by content."""

    def __init__(self, path: str, stack: ExitStack) -> None:
        self.path = path
        self.shown = shown_name(path)
        self._stack = stack
        self._raw: BinaryIO | None = None

    def bytes_read(self) -> int:
        """How far the file has been read, in its own (compressed) bytes; 0 if unknown."""
        if self._raw is None or not self._raw.seekable():
            return 0
        return self._raw.tell()

    def records(self) -> Iterator[Any]:
        """dnaio records of a file of any known format and compression."""
        if self.path == STDIN:
            self._raw = sys.stdin.buffer
        else:
            self._raw = self._stack.enter_context(open(self.path, "rb"))
        magic, plain = _look_ahead(self._raw, blanks=False)
        compression = next((name for start, name in _COMPRESSIONS if magic.startswith(start)), None)
        if compression is not None:
            # gzip on a thread of isal's; the others in this process, whose errors can be told apart
            threads = 1 if compression == "gz" else 0
            opened: Any = self._stack.enter_context(
                xopen(plain, "rb", format=compression, threads=threads)
            )
        else:
            opened = plain
        start, plain = _look_ahead(opened, blanks=True)
        if not start:
            return iter(())
        if start.startswith(b"BAM\x01"):
            fileformat = "bam"
        elif start[:1] in (b">", b"#"):
            fileformat = "fasta"
        elif start[:1] == b"@":
            fileformat = "fastq"
        else:
            problem = "is no FASTA, FASTQ or BAM file (it starts with neither '>' nor '@')"
            raise DataError(problem, file=self.shown)
        # given an opener, dnaio also closes what it opened
        reader = dnaio.open(self.path, fileformat=fileformat, opener=lambda path, mode: plain)
        return iter(self._stack.enter_context(reader))


class _Ahead(io.RawIOBase):
    """A stream of which ``start`` has been read already."""

    def __init__(self, start: bytes, rest: Any) -> None:
        self._start = start
        self._rest = rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._start or self._rest.read1(len(buffer))
        count = min(len(data), len(buffer))
        buffer[:count] = data[:count]
        self._start = self._start[count:]
        return count


def _look_ahead(file: Any, *, blanks: bool) -> tuple[bytes, io.BufferedReader]:
    """The first bytes of a file, with ``blanks`` those after blank space; and the whole file.

    A pipe may hand over its first bytes one by one: what tells the format is waited for.
    """
    read: list[bytes] = []
    start = b""
    while len(start) < _LONGEST_MAGIC and (piece := file.read1(io.DEFAULT_BUFFER_SIZE)):
        read.append(piece)
        start += piece
        if blanks:
            start = start.lstrip()
            if start[:1] in (b">", b"#", b"@"):
                break
    return start, io.BufferedReader(_Ahead(b"".join(read), file), _BUFFER_BYTES)
