"""FASTA, FASTQ and unaligned BAM files as batches of reads.

The format and the compression (gzip, bzip2, xz, zstd or none) are told apart by content, ``-`` is
standard input. Reading and decompressing is dnaio's and xopen's work; this module adds batches and
errors that name file, record and position.
"""

from __future__ import annotations

import io
import itertools
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Any, BinaryIO

import dnaio
from xopen import xopen

from streamer.errors import DataError
from streamer.reads import BadReadError, ReadBatch

STDIN = "-"
BATCH_BASES = 4_000_000
BATCH_READS = 100_000

_COMPRESSIONS = ((b"\x1f\x8b", "gz"), (b"BZh", "bz2"), (b"\xfd7zXZ\x00", "xz"), (b"\x28\xb5\x2f\xfd", "zst"))


def shown_name(path: str) -> str:
    """How messages name an input."""
    return "<stdin>" if path == STDIN else path


def read_batches(
    paths: Iterable[str], *, batch_bases: int = BATCH_BASES, batch_reads: int = BATCH_READS
) -> Iterator[ReadBatch]:
    """All reads of the files, in order, in batches that end once they hold ``batch_bases`` bases.

    A batch holds reads of one file, so that its errors have a place. The reads before a faulty
    record are yielded before DataError is raised, so that nothing that was read is lost.
    """
    for path in paths:
        yield from _batches_of_file(path, batch_bases, batch_reads)


def _batches_of_file(path: str, batch_bases: int, batch_reads: int) -> Iterator[ReadBatch]:
    names: list[str] = []
    sequences: list[str] = []
    size = 0
    first = 1
    try:
        for name, sequence in _records(path):
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


def _records(path: str) -> Iterator[tuple[str, str]]:
    """(first word of the header, letters) of every record; DataError for what cannot be read."""
    number = 0
    with ExitStack() as stack:
        try:
            reader = _open(path, stack)
            for number in itertools.count(1):
                record = next(reader, None)
                if record is None:
                    return
                yield record.id, record.sequence
        except dnaio.FileFormatError as error:
            line = "" if error.line is None else f" (line {error.line + 1})"
            problem = f"not valid {error.format}{line}: {error.message}"
        except (EOFError, UnicodeError) as error:
            problem = str(error)
            if isinstance(error, EOFError):
                problem = "the compressed file ends too early: it is truncated"
            elif isinstance(error, UnicodeError):
                problem = "a byte that is not text"
        except IsADirectoryError:
            raise DataError("is a directory, not a sequence file", file=shown_name(path)) from None
        except FileNotFoundError:
            raise DataError("no such file", file=shown_name(path)) from None
        except PermissionError:
            raise DataError("permission denied", file=shown_name(path)) from None
        except _READ_ERRORS as error:
            problem = f"cannot be read: {str(error) or type(error).__name__}"
    raise DataError(problem, file=shown_name(path), record=max(number, 1))


def _read_errors() -> tuple[type[BaseException], ...]:
    """What the decompressors and the BAM reader raise for damaged content."""
    import lzma
    import zlib

    errors: list[type[BaseException]] = [OSError, ValueError, zlib.error, lzma.LZMAError]
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


def _open(path: str, stack: ExitStack) -> Iterator[Any]:
    """An iterator of dnaio records over a file of any known format and compression."""
    raw: BinaryIO = sys.stdin.buffer if path == STDIN else stack.enter_context(open(path, "rb"))
    magic = _peek(raw, 6)
    compression = next((name for start, name in _COMPRESSIONS if magic.startswith(start)), None)
    plain = raw
    if compression is not None:
        plain = stack.enter_context(xopen(raw, "rb", format=compression))
    if not hasattr(plain, "peek"):
        plain = stack.enter_context(io.BufferedReader(plain))  # type: ignore[type-var]
    start = _peek(plain, 256).lstrip()
    if not start:
        return iter(())
    if start.startswith(b"BAM\x01"):
        fileformat = "bam"
    elif start[:1] in (b">", b"#"):
        fileformat = "fasta"
    elif start[:1] == b"@":
        fileformat = "fastq"
    else:
        raise DataError(
            "is no FASTA, FASTQ or BAM file (it starts with neither '>' nor '@')",
            file=shown_name(path),
        )
    return iter(stack.enter_context(dnaio.open(plain, fileformat=fileformat)))


def _peek(file: Any, count: int) -> bytes:
    return bytes(file.peek(count)[:count])
