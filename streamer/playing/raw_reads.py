"""FASTQ records as bytes, so that playback sends exactly what was sequenced."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from itertools import islice
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
    context = ReadContext.of_headers(text, firsts, stops, group[0].path)
    for read, barcode in zip(group, context.barcode.of(if_barcode).texts(), strict=True):
        yield read._replace(barcode=barcode or "")


def _of_file(path: str, raw: Any) -> Iterator[RawRead]:
    # in this process: an interrupt would reach a child process too
    file: Any = xopen(raw, "rb", threads=0)
    while header := file.readline():
        if not header.strip():
            continue
        if not header.startswith(b"@"):
            problem = "not FASTQ, which runs are played from: the record does not begin with '@'"
            raise ValueError(problem)
        letters, plus, qualities = (file.readline() for _ in range(3))
        bases = len(letters.rstrip(b"\r\n"))
        if not plus.startswith(b"+") or bases != len(qualities.rstrip(b"\r\n")):
            problem = "not valid FASTQ: expected letters, '+' and as many qualities, a line each"
            raise ValueError(problem)
        end = b"" if qualities.endswith(b"\n") else b"\n"
        yield RawRead(path, b"".join((header, letters, plus, qualities, end)), bases)
