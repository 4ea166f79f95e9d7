"""FASTQ, four lines a record: ``@`` and a header, letters, ``+``, as many qualities as letters.

Lines end with LF or CRLF; blank lines before, between and after records are skipped. dnaio parses
ASCII fast, but rejects a whole buffer for one other byte and reports the wrong place. What it
rejects is parsed here line by line: headers are bytes, and errors name record and line.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

import dnaio
import numpy as np

from streamer.sequences.fastq import record_of
from streamer.sequences.read_batch import name_of
from tests.reference.reader.fasta import Readable

Record = tuple[str, bytes]  # name (``streamer.sequences.read_batch.name_of``) and letters
BLOCK_BYTES = 1 << 17
LINES = 4  # lines per record
_NEWLINE = ord("\n")


def fastq_records(file: Readable) -> Iterator[Record]:
    """The records in order; raises FormatError at the first faulty one."""
    waiting: list[bytes] = []
    newlines = 0
    first = 1  # number of the first buffered line
    while data := file.read1(BLOCK_BYTES):
        newlines += int(np.count_nonzero(np.frombuffer(data, np.uint8) == _NEWLINE))
        if newlines < LINES:
            waiting.append(data)
            continue
        cut = len(data)
        for _ in range(newlines % LINES + 1):
            cut = data.rfind(b"\n", 0, cut)
        cut += 1
        whole, rest = b"".join((*waiting, memoryview(data)[:cut])), data[cut:]
        waiting = [rest]
        records = _by_dnaio(whole)
        if records is not None:
            yield from records
            first += newlines - newlines % LINES
            newlines %= LINES
        else:
            lines = (whole + rest).split(b"\n")
            left = yield from _line_by_line(lines, first)
            waiting = [b"\n".join(left)]
            first += len(lines) - len(left)
            newlines = len(left) - 1
    last = b"".join(waiting)
    if last and not last.endswith(b"\n"):
        last += b"\n"
    lines = last.split(b"\n")
    left = yield from _line_by_line(lines, first)
    if len(left) > 1:
        record_of(left[:-1], first + len(lines) - len(left))


class _Once:
    """A file of one block."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, _: int) -> bytes:
        data, self._data = self._data, b""
        return data


def _by_dnaio(data: bytes) -> list[Record] | None:
    """The records of whole lines; None if dnaio would reject or change one."""
    # dnaio's id ends at a NUL
    if b"\0" in data:
        return None
    try:
        reader = dnaio.FastqReader(_Once(data), buffer_size=len(data) + 1)  # type: ignore[arg-type]
        # the id also ends at the first blank, which may be the first letter
        return [(one.id or name_of(one.name.encode()), one.sequence.encode()) for one in reader]
    except dnaio.FileFormatError:
        return None


def _line_by_line(lines: list[bytes], first: int) -> Generator[Record, None, list[bytes]]:
    """The records of lines, the last one incomplete; returns the remaining lines.

    first: the number of the first line.
    """
    at = 0
    while True:
        while at < len(lines) - 1 and not lines[at].strip():
            at += 1
        if at + LINES >= len(lines):
            return lines[at:]
        yield record_of(lines[at : at + LINES], first + at)
        at += LINES
