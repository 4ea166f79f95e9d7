"""FASTA in parts, so that memory does not grow with the records.

A record is a line that begins with ``>``, then lines of letters; lines end with LF, CRLF or CR.
Blank lines, blank space at the ends of lines, and lines that begin with ``#`` are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from streamer.sequences.text_window import FormatError

FastaPart = tuple[bytes | None, bytes]
"""The header (without ``>``) of a record that begins, or None if one continues; and letters."""

BLOCK_BYTES = 1 << 17
LONGEST_HEADER = 1 << 24  # most bytes of a header: nothing else must fit into memory as a whole
_CUT_WITHIN = 64  # a long line of letters has two adjacent letters this close to the end of a block


class Readable(Protocol):
    """What a parser needs of a file."""

    def read1(self, size: int = ..., /) -> bytes:
        """Up to ``size`` bytes; empty at the end."""


def fasta_parts(file: Readable) -> Iterator[FastaPart]:
    """The records in order, each as one part or several; only a first part may lack letters.

    Letters are not checked: anything but line ends and headers is passed on unchanged.
    """
    rest = b""
    begun = False
    lines = 0
    while True:
        data = file.read1(BLOCK_BYTES)
        # now every line of the block follows a line feed
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
    """Where to cut a block so that the first part can be parsed without the rest."""
    end = block.rfind(b"\n") + 1
    start = block[end : end + _CUT_WITHIN].lstrip()[:1]
    if start.isalpha():
        # a line may end between any two letters
        for at in range(len(block) - 1, max(end, len(block) - _CUT_WITHIN), -1):
            if block[at - 1 : at + 1].isalpha():
                return at
    if len(block) - end <= LONGEST_HEADER:
        return end
    if start in (b">", b"#"):
        problem = f"not valid FASTA: a header or comment of more than {LONGEST_HEADER >> 20} MiB"
        raise FormatError(problem)
    return len(block)


def _header_in(stretch: bytes, before: int) -> bool:
    """Whether the lines before the first record hold a header; FormatError if they hold letters.

    before: the number of lines before these.
    """
    for number, line in enumerate(stretch.split(b"\n"), before):
        start = line.strip()
        if start.startswith(b">"):
            return True
        if start and not start.startswith(b"#"):
            shown = start[:20].decode("ascii", "replace")
            problem = f"expected '>' at the beginning of a record (line {number}), not '{shown}'"
            raise FormatError("not valid FASTA: " + problem)
    return False


def _line_by_line(header: bytes | None, stretch: bytes) -> Iterator[FastaPart]:
    """The parts of lines, some of which contain more than letters."""
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
