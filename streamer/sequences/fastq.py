"""Parse FASTQ, four lines a record: ``@`` and header, letters, ``+``, one quality per letter.

Lines end with LF or CRLF; blank lines before, between and after records are skipped. A kernel takes
records as long as they are valid; the one it stops at is read again line by line to produce an
error message. ``WholeRecords`` reads a file that is still being written.

    @name and more LF letters LF + LF qualities LF
    └ 64 bytes at a time, each line to its LF; letters become codes on the way

Cost of a record of 150 letters: one 64-byte step each for the name and the header, three for the
letters, three for the qualities.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np

from streamer.errors import DataError, warn
from streamer.sequences.context import ReadContext
from streamer.sequences.raw_file import (
    AT,
    BLOCK_BYTES,
    LINE,
    PLUS,
    SEEN,
    SEEN_LINES,
    STOP,
    FormatError,
    Text,
    TextBlock,
    new_block,
)
from streamer.sequences.read_batch import COUNT_BYTES, ReadBatch, name_of
from streamer.sequences.record_buffer import (
    ENOUGH,
    FAULT,
    FILLED,
    FULL,
    MORE,
    MOST,
    NAMED,
    RECORDS,
    ROOM,
    RecordBuffer,
    RecordParser,
    TextPiece,
    add_record,
    place_record,
)
from trie.codes import CR, LETTER_TO_CODE, LF, encode_line
from trie.cpu.intrinsics import trailing_zeros
from trie.cpu.jit import inner, njit
from trie.cpu.vectors import SLACK, equals, outside

LINES: Final = 4  # of a record
_SHOWN = 20

_BEHIND_LF: Final = np.uint8(0x0B)
_ASCII: Final = np.uint8(0x7F)


class FastqParser(RecordParser):
    """Parses the records of a FASTQ text."""

    def _take_records(self, buffer: RecordBuffer) -> int:
        text = self._text
        if text.ended:
            text.end_line()
            text.place[SEEN] = 0
        stop, likely = ROOM, True
        while stop == ROOM:
            columns = buffer.columns(len(text), likely=likely)
            stop = _take(text.array, text.place, LETTER_TO_CODE, buffer.letters, *columns)
            likely = False
        return FAULT if stop == MORE and text.ended and len(text) else int(stop)

    def _faulty(self) -> tuple[str, bytes]:
        *lines, _ = self._text.start().split(b"\n", LINES)
        return record_of(lines, int(self._text.place[LINE]))


@njit(cache=True, nogil=True)
def _take(text, place, table, raw, state, codes, starts, names, bounds, places):
    """Append whole records to the columns; return FULL, MORE, ROOM, or FAULT before a bad one."""
    at = place[AT]
    stop = place[STOP]
    line = place[LINE]
    if place[SEEN]:
        # the record did not fit into the text before: resume counting its lines where that stopped
        lines = place[SEEN_LINES] + _line_ends(text, at + place[SEEN], stop)
        if lines < LINES:
            place[SEEN] = stop - at
            place[SEEN_LINES] = lines
            return MORE
        place[SEEN] = 0
    result = MORE
    while at < stop:
        header = _line_end(text, at, stop)
        if text[at] != 0x40:
            if header >= stop or not _blank(text, at, header):
                break
            at = header + 1
            line += 1
            continue
        first = header + 1
        if first >= stop:
            break
        named = state[NAMED] + first - at + COUNT_BYTES + SLACK
        fits = first + codes.size - SLACK - state[FILLED]
        if state[RECORDS] == len(bounds) or named > names.size or fits < first:
            result = ROOM
            break
        end, bad = encode_line(
            text, first, min(stop, fits), codes, state[FILLED], table, False, raw
        )
        if end >= fits and fits < stop:
            result = ROOM
            break
        if end + 1 >= stop:
            break
        header -= text[header - 1] == CR
        letters = end - first
        letters -= letters > 0 and text[end - 1] == CR
        plus = end + 1
        end = _line_end(text, plus, stop)
        quality = end + 1
        if quality >= stop or text[plus] != 0x2B or bad < first + letters:
            break
        end -= text[end - 1] == CR
        differs = end > plus + 1 and not _equal(text, at + 1, header, plus + 1, end)
        end = _qualities_end(text, quality, stop)
        if end >= stop or text[end] != LF:
            break
        count = end - quality
        count -= count > 0 and text[end - 1] == CR
        if count != letters:
            break
        add_record(text, at + 1, header, state, codes, starts, names, bounds)
        place_record(state, places, at, header, end + 1)
        state[FILLED] += letters
        if differs and not place[PLUS]:
            place[PLUS] = line + 2
        at = end + 1
        line += LINES
        if state[FILLED] >= state[ENOUGH] or state[RECORDS] >= state[MOST]:
            result = FULL
            break
    place[AT] = at
    place[LINE] = line
    if result == MORE and at < stop:
        # a record can be called faulty only once all its lines are there
        lines = _line_ends(text, at, stop)
        if lines >= LINES:
            return FAULT
        place[SEEN] = stop - at
        place[SEEN_LINES] = lines
    return result


@inner
def _line_end(text, at, stop):
    """Return the place of the next LF; ``stop`` or more if there is none."""
    while at < stop:
        ends = equals(text, at, LF)
        if ends:
            return at + np.int64(trailing_zeros(ends))
        at += 64
    return at


@inner
def _qualities_end(text, at, stop):
    """Return the place of the next byte that is LF or not ASCII; ``stop`` or more if none is."""
    while at < stop:
        ends = outside(text, at, _BEHIND_LF, _ASCII)
        while ends:
            i = at + np.int64(trailing_zeros(ends))
            if text[i] == LF or text[i] > _ASCII:
                return i
            ends &= ends - np.uint64(1)
        at += 64
    return at


@inner
def _line_ends(text, at, stop):
    """Count the LFs in text[at:stop], up to those of one record."""
    count = np.int64(0)
    while at < stop and count < LINES:
        at = _line_end(text, at, stop) + 1
        count += at <= stop
    return count


@inner
def _blank(text, first, stop):
    for i in range(first, stop):
        if text[i] != 0x20 and not 0x09 <= text[i] <= 0x0D:
            return False
    return True


@inner
def _equal(text, first, stop, other, end):
    if stop - first != end - other:
        return False
    for i in range(stop - first):
        if text[first + i] != text[other + i]:
            return False
    return True


def warn_of_plus(file: str, line: int) -> None:
    """Warn, once for a file, of a header after ``+`` unlike that after ``@``; 0: there is none."""
    if line:
        problem = "the header after '+' is not the one after '@': it is ignored, here and below"
        warn(f"{file}: line {line}: {problem}", f"+ {file}")


def record_of(lines: list[bytes], first: int) -> tuple[str, bytes]:
    """Parse a record from its lines, fewer than four at the end of a file, or raise FormatError."""
    lines = [line.removesuffix(b"\r") for line in lines]
    header = lines[0]
    name = None

    def fault(line: int, problem: str) -> FormatError:
        return FormatError(f"not valid FASTQ (line {first + line}): {problem}", name)

    if not header.startswith(b"@"):
        raise fault(0, f"expected '@' at the beginning of a record, not {_shown(header)}")
    name = name_of(header[1:])
    if len(lines) > 2 and not lines[2].startswith(b"+"):
        raise fault(
            2,
            f"expected '+', not {_shown(lines[2])}: a record has four lines; multi-line FASTQ is "
            "not supported, convert it with seqtk seq",
        )
    if len(lines) < LINES:
        raise fault(len(lines) - 1, "the file ends within the record")
    _, letters, _, qualities = lines
    if len(letters) != len(qualities):
        raise fault(
            3, f"length {len(letters)} of the sequence, but {len(qualities)} of the qualities"
        )
    if not qualities.isascii():
        raise fault(3, f"the qualities hold byte 0x{max(qualities):02x}")
    return name, letters


def _shown(line: bytes) -> str:
    """Return the beginning of a line for a message."""
    if not line:
        return "an empty line"
    return repr(line[:_SHOWN].decode("ascii", "backslashreplace"))


class WholeRecords:
    """The records of plain FASTQ in ``file``, which is open for reading, from byte ``offset`` on.

    Iterating yields batches with their context, and raises DataError for a faulty record once all
    before it have been yielded. Afterwards ``offset`` is the end of the last whole record, and
    ``rest`` the number of bytes after it. records: how many precede ``offset``. last: the file is
    complete, so its last line needs no line end; if ``rest`` is nonzero all the same, ``problem``
    says what is wrong with it.
    """

    def __init__(
        self,
        path: str,
        file: Any,
        offset: int,
        records: int,
        *,
        last: bool,
        batch_bases: int,
        batch_reads: int,
    ) -> None:
        self.offset = offset
        self.rest = 0
        self.problem: DataError | None = None
        self._path = path
        self._file = file
        self._last = last
        self._buffer = RecordBuffer(path, batch_bases, batch_reads, keeps_text=True, first=records)

    def __iter__(self) -> Iterator[ReadBatch]:
        """Iterate; only once."""
        self._file.seek(self.offset)
        text = Text(self._blocks())
        text.place[LINE] = LINES * self._buffer.records + 1
        parser = FastqParser(text)
        buffer, fault = self._buffer, None
        try:
            while not text.ended:
                while self._parse(parser, text) == FULL:
                    yield self._with_context(buffer.piece())
                text.more()
            self.rest = len(text)
            if self.rest and self._last:
                try:
                    self._parse(parser, text)
                    self.rest = 0
                except DataError as error:
                    self.problem = error
            self.offset -= self.rest
            last = buffer.piece()
        except DataError as error:
            last, fault = buffer.before(error)
        if len(last.reads):
            yield self._with_context(last)
        if fault is not None:
            raise fault

    def _with_context(self, piece: TextPiece) -> ReadBatch:
        assert piece.text is not None
        text, firsts, stops = piece.text.between(0, 1)
        context = ReadContext.of_lines(text, firsts + 1, stops, self._path)
        return replace(piece.reads, context=context)

    def _parse(self, parser: FastqParser, text: Text) -> int:
        begin = int(text.place[AT])
        try:
            return parser.parse(self._buffer, cut=False)
        except FormatError as error:
            name = error.name if error.name and error.name.isprintable() else None
            record = self._buffer.records + 1
            raise DataError(str(error), file=self._path, record=record, name=name) from None
        finally:
            self._buffer.keep(text.array, begin, int(text.place[AT]))
            warn_of_plus(self._path, int(text.place[PLUS]))

    def _blocks(self) -> Iterator[TextBlock]:
        while True:
            block = new_block(BLOCK_BYTES)
            size = self._file.readinto(block.array.data[block.first : block.stop])
            if not size:
                return
            self.offset += size
            yield block._replace(stop=block.first + size)
