"""Parse FASTQ in several threads: in regions, each cut where a record seems to end.

    text      ... record | record | record | rec      record | record ...
    regions   [-------------------------)[ left over ... next block -----

A cut is a guess: it follows four whole lines that look like a record. It was right if the region's
parser consumed the last byte with the last record, because the next region then begins with a
record. At the first region where this fails, or that holds any fault, a single parser resumes from
its beginning (``SequenceSource``). So records, errors and positions are those of a single parser.

The thread that parses a region also does the work on its records, and reads the region itself if
the file is uncompressed: waking another thread and reacquiring the GIL costs more than either. So
work may have been done on records after a fault. Its results are dropped and the fault is raised.
Text whose parse failed is handed over, not read from the file again, because a second read might
succeed.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, Generic, NamedTuple, TypeVar

import numpy as np

from streamer.errors import DataError
from streamer.sequences import raw_file
from streamer.sequences.fastq import LINES, FastqParser
from streamer.sequences.record_buffer import FULL, RecordBuffer, TextPiece
from trie.codes import CR, LF
from trie.cpu.intrinsics import leading_zeros
from trie.cpu.jit import inner, njit
from trie.cpu.stages import Stages
from trie.cpu.vectors import equals

R = TypeVar("R")

LEAST_THREADS = 3
"""The smallest team: with two threads, one parses and decompresses while the other matches."""

_MOST_REGIONS: Final = 8
"""A text without the end of a record is given up after this many regions."""

_LOOK_BYTES = 1 << 16
"""Bytes before a region's intended end that are searched first for the end of a record."""


class Worked(NamedTuple, Generic[R]):
    """The result of the work on some records, with their numbers of records and symbols."""

    records: int
    symbols: int
    result: R


class Parsed(NamedTuple, Generic[R]):
    """A region, the work on its records, their number of lines, and the first line of ``+`` that
    differs from that of ``@`` (from 1; 0: none).

    worked: None if the region does not hold whole records. ``region`` is then the text whose parse
    failed, and ``error`` says why the text ends there, if it could not be read.
    """

    region: raw_file.TextBlock | raw_file.FileRegion
    worked: list[Worked[R]] | None
    lines: int
    error: OSError | None = None
    plus: int = 0


class CannotReadError(Exception):
    """The text ends here; ``cause`` says why."""

    def __init__(self, cause: Exception) -> None:
        super().__init__()
        self.cause = cause


def regions(text: raw_file.Text) -> Iterator[raw_file.TextBlock]:
    """Yield the rest of a text in regions of ``REGION_BYTES``, ending after one without a cut."""
    while True:
        text.show()
        if len(text) > raw_file.REGION_BYTES // 2 or text.ended:
            first, stop = int(text.place[raw_file.AT]), int(text.place[raw_file.STOP])
            cut = int(_last_end(text.array, first, stop))
            given_up = cut == first and (
                text.ended or stop - first > _MOST_REGIONS * raw_file.REGION_BYTES
            )
            if given_up:
                cut = stop
            if cut > first:
                text.place[raw_file.AT] = cut
                yield raw_file.TextBlock(text.array, first, cut)
            if given_up:
                return
        if text.ended:
            if len(text):
                yield _rest(text)
            return
        try:
            text.more()
        except Exception as error:
            # the single parser takes what precedes the error
            if len(text):
                yield _rest(text)
            raise CannotReadError(error) from None


def _rest(text: raw_file.Text) -> raw_file.TextBlock:
    first, stop = int(text.place[raw_file.AT]), int(text.place[raw_file.STOP])
    text.place[raw_file.AT] = stop
    return raw_file.TextBlock(text.array, first, stop)


def file_regions(file: raw_file.FileRegion, size: int) -> Iterator[raw_file.FileRegion]:
    """Yield regions of an uncompressed file, as long as a record ends near a region's end.

    size: of a region, approximately, in bytes.
    """
    descriptor, first, stop = file
    while first < stop:
        cut = _file_cut(file._replace(first=first), size)
        if cut == first:
            return
        yield raw_file.FileRegion(descriptor, first, cut)
        first = cut


def _file_cut(file: raw_file.FileRegion, size: int) -> int:
    """Return where the next region ends; ``file.first`` if no place is found."""
    descriptor, first, last = file
    most = _MOST_REGIONS * size
    while size <= most:
        stop = min(first + size, last)
        if stop == last:
            return stop
        look, begin = _LOOK_BYTES, stop
        while begin > first:
            begin = max(first, stop - look)
            block, error = raw_file.FileRegion(descriptor, begin, stop).read()
            if error is not None:
                return first  # the error will be raised when this place is read in turn
            cut = begin + int(_last_end(block.array, block.first, block.stop)) - block.first
            if cut > begin:
                return cut
            look *= 8
        size *= 2
    return first


def unparsed(
    first: Parsed[R] | None, others: Iterator[Parsed[R]], rest: Iterable[raw_file.TextBlock]
) -> Iterator[raw_file.TextBlock]:
    """Yield the blocks from the first region that failed to parse, and those after all regions."""
    done = first
    try:
        while done is not None:
            assert isinstance(done.region, raw_file.TextBlock)
            yield done.region
            if done.error is not None:
                raise done.error
            done = next(others, None)
    except CannotReadError as error:
        raise error.cause from None
    yield from rest


def parsed(
    region: raw_file.TextBlock | raw_file.FileRegion,
    buffer: RecordBuffer,
    work: Callable[[TextPiece], R],
    stages: Stages,
    *,
    mapped: bool = False,
) -> Parsed[R]:
    """Parse a region into an empty buffer and do the work on its records.

    mapped: do not copy the region; an error when it is read may then end the process.
    """
    error = None
    if isinstance(region, raw_file.TextBlock):
        block = region
    elif mapped and (there := region.mapped()) is not None:
        block = there
    else:
        with stages.spent("read"):
            block, error = region.read()
        if error is None and block.stop - block.first < region.stop - region.first:
            error = OSError("the file has become shorter")
    try:
        if error is not None:
            raise error
        pieces, lines, plus = _parsed(block, buffer)
    except (raw_file.FormatError, DataError, OSError):
        return Parsed(block, None, 0, error)
    # frees their memory for the next region while this one's records are worked on
    del block, buffer
    worked = []
    while pieces:  # drop each piece once it is done
        piece = pieces.pop(0)
        reads, symbols = len(piece.reads), piece.reads.symbols
        worked.append(Worked(reads, symbols, work(piece)))
    return Parsed(region, worked, lines, plus=plus)


def _parsed(block: raw_file.TextBlock, buffer: RecordBuffer) -> tuple[list[TextPiece], int, int]:
    """Parse the records into pieces, with ``lines`` and ``plus`` as in ``Parsed``.

    Raises FormatError if they are not whole.
    """
    text = raw_file.Text(iter((block,)))
    parser = FastqParser(text)
    pieces: list[TextPiece] = []
    text.more()
    text.show()
    while True:
        begin = int(text.place[raw_file.AT])
        stop = parser.parse(buffer, cut=False)
        buffer.keep(text.array, begin, int(text.place[raw_file.AT]))
        if stop != FULL:
            break
        pieces.append(buffer.piece())
    if buffer.waiting:
        pieces.append(buffer.piece(last=True))
    if len(text):
        raise raw_file.FormatError("the region ends within a record")
    return pieces, int(text.place[raw_file.LINE]) - 1, int(text.place[raw_file.PLUS])


@njit(cache=True)  # usually so short that releasing the GIL takes longer
def _last_end(text, first, stop):
    """Return the end of the last plausible record in text[first:stop], or ``first``."""
    # where lines begin, and where the last one ends; ascending
    begins = np.empty(LINES + 1, np.int64)
    ends = 0
    at = stop + 1
    while at > first:
        at = _last_begin(text, first, at - 1)
        begins[1:] = begins[:-1].copy()
        begins[0] = at
        ends += 1
        if ends > LINES and _is_record(text, begins):
            return begins[LINES]
    return first


@inner
def _last_begin(text, first, at):
    """Return the last place up to ``at`` where a line of text[first:] begins."""
    while at - first >= 64:
        ends = equals(text, at - 64, LF)
        if ends:
            return at - np.int64(leading_zeros(ends))
        at -= 64
    while at > first and text[at - 1] != LF:
        at -= 1
    return at


@inner
def _is_record(text, begins):
    """Return whether four lines look like a record."""
    header, letters, plus, qualities, end = begins
    if text[header] != 0x40 or text[plus] != 0x2B:
        return False
    return _length(text, letters, plus) == _length(text, qualities, end)


@inner
def _length(text, begin, end):
    """Return the length of a line without LF or CRLF."""
    stop = end - 1
    return stop - begin - (stop > begin and text[stop - 1] == CR)
