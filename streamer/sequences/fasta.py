"""FASTA in parts, so that memory does not grow with the records.

A record is a line that begins with ``>``, then lines of letters; lines end with LF, CRLF or CR.
Blank lines, blank space at the ends of lines, and lines that begin with ``#`` are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

Part = tuple[bytes | None, bytes]
"""The header of a record that begins, without ``>``, or None where one goes on; and letters."""

BLOCK_BYTES = 1 << 17
LONGEST_HEADER = 1 << 24
"""Bytes of a header, at most: it is held whole, as nothing else is."""

_CUT_WITHIN = 64
"""So near the end of a block a long line has two letters side by side, if it is one of letters."""


class FastaError(ValueError):
    """What makes a file no FASTA."""


class Readable(Protocol):
    """A file as far as it is needed here."""

    def read1(self, size: int = ..., /) -> bytes:
        """At most ``size`` bytes, none at the end."""


def fasta_parts(file: Readable) -> Iterator[Part]:
    """The records in order, each as one part or several; only a first part may lack letters.

    Letters are not looked at: what is no line's end and no header comes out as it stands.
    """
    rest = b""
    begun = False
    lines = 0
    while True:
        data = file.read1(BLOCK_BYTES)
        # every line of the block begins behind a line's end
        block = b"".join((b"\n", rest, data))
        if b"\r" in block:
            block = block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        cut = _cut(block) if data else len(block)
        rest = block[cut:]
        stretches = block[:cut].split(b"\n>")
        if not begun:
            begun = _header_in(stretches[0], lines)
            lines += stretches[0].count(b"\n") - 1
            stretches[0] = stretches[0] if begun else b""
        for number, stretch in enumerate(stretches):
            header: bytes | None = None
            if number:
                header, _, stretch = stretch.partition(b"\n")
                begun = True
            letters = stretch.replace(b"\n", b"")
            if not letters or letters.isalpha():
                if letters or header is not None:
                    yield header, letters
            else:
                yield from _line_by_line(header, stretch)
        if not data:
            return


def _cut(block: bytes) -> int:
    """Where a block ends that can be understood without what follows."""
    end = block.rfind(b"\n") + 1
    start = block[end : end + _CUT_WITHIN].lstrip()[:1]
    if start.isalpha():
        # between two letters a line may as well end
        for at in range(len(block) - 1, max(end, len(block) - _CUT_WITHIN), -1):
            if block[at - 1 : at + 1].isalpha():
                return at
    if len(block) - end <= LONGEST_HEADER:
        return end
    if start in (b">", b"#"):
        message = f"a header or comment of more than {LONGEST_HEADER >> 20} MiB"
        raise FastaError(message)
    return len(block)


def _header_in(stretch: bytes, before: int) -> bool:
    """Whether a header stands in lines that follow none, behind blank space; FastaError if letters.

    before: the number of lines in front of these.
    """
    for number, line in enumerate(stretch.split(b"\n"), before):
        start = line.strip()
        if start.startswith(b">"):
            return True
        if start and not start.startswith(b"#"):
            shown = start[:20].decode("ascii", "replace")
            message = f"expected '>' at the beginning of a record (line {number}), not '{shown}'"
            raise FastaError(message)
    return False


def _line_by_line(header: bytes | None, stretch: bytes) -> Iterator[Part]:
    """The parts of lines of which not all are letters alone."""
    letters: list[bytes] = []
    for line in map(bytes.strip, stretch.split(b"\n")):
        if line.startswith(b">"):
            if letters or header is not None:
                yield header, b"".join(letters)
            header, letters = line[1:], []
        elif line and not line.startswith(b"#"):
            letters.append(line)
    if letters or header is not None:
        yield header, b"".join(letters)
