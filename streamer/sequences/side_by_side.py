"""FASTQ that several threads parse: regions of its text, each cut where a record seems to end.

    text      ... record | record | record | rec      record | record ...
    regions   [-------------------------)[ left over ... next block -----

A cut is a guess: four whole lines that look like a record. It was right if the parser of a region
takes its last byte with its last record, for then the next region begins with a record. At the
first region that is not so, or in which anything is faulty, one parser goes on alone from its
beginning (``SequenceSource``): records, errors and their places are those of one parser.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from streamer.errors import DataError
from streamer.sequences.fastq import LINES, FastqParser
from streamer.sequences.filling import FULL
from streamer.sequences.record_buffer import RecordBuffer, TextPiece
from streamer.sequences.text_window import (
    AT,
    LINE,
    REGION_BYTES,
    STOP,
    FormatError,
    Text,
    TextBlock,
)
from trie.cpu.jit import inner, njit
from trie.letter_lines import CR, LF

LEAST_THREADS = 3
"""Of a team: with two, one parses and decompresses while the other matches."""

_MOST_BYTES: Final = 8 * REGION_BYTES
"""Of a region: a text without an end of a record in it is given up."""


class Parsed(NamedTuple):
    """A region, its records in pieces, and how many lines they have; None: not whole records."""

    block: TextBlock
    pieces: list[TextPiece] | None
    lines: int


def regions(text: Text) -> Iterator[TextBlock]:
    """All that follows of a text, in regions of about ``REGION_BYTES``."""
    while True:
        text.show()
        if len(text) > REGION_BYTES // 2 or text.ended:
            first, stop = int(text.place[AT]), int(text.place[STOP])
            cut = int(_last_end(text.array, first, stop))
            if cut == first and (text.ended or stop - first > _MOST_BYTES):
                cut = stop
            if cut > first:
                yield TextBlock(text.array, first, cut)
                text.place[AT] = cut
        if text.ended:
            if len(text):
                yield TextBlock(text.array, int(text.place[AT]), int(text.place[STOP]))
            return
        try:
            text.more()
        except BaseException:
            # a parser that goes on alone takes what there is before the error
            if len(text):
                yield TextBlock(text.array, int(text.place[AT]), int(text.place[STOP]))
            raise


def parsed(block: TextBlock, buffer: RecordBuffer) -> Parsed:
    """Parse a region into an empty buffer."""
    text = Text(iter((block,)))
    parser = FastqParser(text)
    pieces: list[TextPiece] = []
    try:
        text.more()
        text.show()
        while True:
            begin = int(text.place[AT])
            stop = parser.parse(buffer, cut=False)
            buffer.keep(text.array, begin, int(text.place[AT]))
            if stop != FULL:
                break
            pieces.append(buffer.piece())
        if buffer.waiting:
            pieces.append(buffer.piece())
    except (FormatError, DataError):
        return Parsed(block, None, 0)
    return Parsed(block, None if len(text) else pieces, int(text.place[LINE]) - 1)


@njit(cache=True, nogil=True)
def _last_end(text, first, stop):
    """Behind the last record that seems to end in text[first:stop]; ``first`` if there is none."""
    begins = np.empty(LINES + 1, np.int64)  # of lines, and where the last one ends; ascending
    found = 0
    at = stop + 1
    while at > first:
        at -= 1
        if at == first or text[at - 1] == LF:
            begins[1:] = begins[:-1].copy()
            begins[0] = at
            found += 1
            if found > LINES and _is_record(text, begins):
                return begins[LINES]
    return first


@inner
def _is_record(text, begins):
    """Whether four lines look like one."""
    header, letters, plus, qualities, end = begins
    if text[header] != 0x40 or text[plus] != 0x2B:
        return False
    return _length(text, letters, plus) == _length(text, qualities, end)


@inner
def _length(text, begin, end):
    """Of a line, without LF or CRLF."""
    stop = end - 1
    return stop - begin - (stop > begin and text[stop - 1] == CR)
