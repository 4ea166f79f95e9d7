"""Parse FASTA in parts, so that memory use does not grow with record length.

A record is a line that begins with ``>``, followed by lines of letters; lines end with LF, CRLF or
CR. Blank lines, trailing blanks, and lines that begin with ``#`` are skipped. A kernel takes line
after line, and sequence lines also in part.
"""

from typing import Final

import numpy as np

from streamer.errors import DataError
from streamer.sequences.raw_file import AT, LINE, STOP, WITHIN, FormatError, Text
from streamer.sequences.record_buffer import (
    CUT,
    ENOUGH,
    FAULT,
    FILLED,
    FULL,
    MORE,
    MOST,
    RECORDS,
    RecordBuffer,
    add_record,
    place_record,
)
from streamer.sequences.record_limit import LONGEST_HEADER
from trie.codes import CR, LETTER_TO_CODE, LF, encode_line
from trie.cpu.intrinsics import trailing_zeros
from trie.cpu.jit import njit
from trie.cpu.vectors import equals

_SHOWN = 20
_ENOUGH = 64  # bytes of a line that an error message may need

# parser states: before the first record, at the beginning of a line, within a sequence line
_BEFORE, _LINES, _LETTERS = range(3)
_HEADER: Final = 0x3E
_COMMENT: Final = 0x23


class FastaParser:
    """Parses the records of a FASTA text."""

    begins_records = True
    """Whether a record counts once it has begun, rather than once it is complete."""

    def __init__(self, text: Text) -> None:
        self._text = text

    def parse(self, buffer: RecordBuffer, *, cut: bool) -> int:
        """Take records until the next one needs another buffer (FULL) or the text ends (MORE).

        With ``cut``, also stop when more letters of the last record need another buffer (CUT).
        Raises FormatError or DataError for a fault, once all records before it are in the buffer.
        """
        text = self._text
        if text.ended:
            text.end_line()
        columns = buffer.columns(len(text))
        stop = _take(text.array, text.place, cut, LETTER_TO_CODE, buffer.letters, *columns)
        if not cut:
            buffer.check_sizes()
        if stop == FAULT:
            raise self._fault(buffer)
        long = stop == MORE and len(text) > LONGEST_HEADER
        if long and text.start(_ENOUGH).lstrip()[:1] in (b">", b"#"):
            longest = f"{LONGEST_HEADER >> 20} MiB"
            raise FormatError(f"not valid FASTA: a header or comment of more than {longest}")
        return int(stop)

    def _fault(self, buffer: RecordBuffer) -> FormatError | DataError:
        """Return the error for the byte or line at which the text begins."""
        text = self._text
        if text.place[WITHIN] == _LETTERS:
            return buffer.bad_letter(text.start(1)[0], 0)
        line = text.start().replace(b"\r", b"\n").lstrip().partition(b"\n")[0].strip()
        shown = line[:_SHOWN].decode("ascii", "replace")
        number = text.place[LINE]
        problem = f"expected '>' at the beginning of a record (line {number}), not '{shown}'"
        return FormatError("not valid FASTA: " + problem)


@njit(cache=True, nogil=True)
def _take(text, place, cut, table, raw, state, codes, starts, names, bounds, places):
    """Append lines to the columns; return MORE, FULL or CUT before a line, or FAULT.

    A fault is at text[AT]: an invalid byte within a sequence, or a line before the first record.
    """
    at = place[AT]
    stop = place[STOP]
    within = place[WITHIN]
    result = MORE
    while at < stop:
        first = _nonblank(text, at, stop)
        if first == stop:
            break
        kind = text[first]
        if kind in (LF, CR):
            at = _next_line(text, first, stop)
            if at > stop:
                at = first
                break
            place[LINE] += 1
            if within == _LETTERS:
                within = _LINES
            continue
        if within != _LETTERS:
            if kind in (_HEADER, _COMMENT) or within == _BEFORE:
                end = _line_end(text, first, stop)
                following = _next_line(text, end, stop)
                if kind not in (_HEADER, _COMMENT):
                    if following <= stop or stop - first >= _ENOUGH:
                        result = FAULT
                    break
                if following > stop:
                    break
                if kind == _HEADER:
                    if state[FILLED] >= state[ENOUGH] or state[RECORDS] >= state[MOST]:
                        result = FULL
                        break
                    # blanks after ``>`` belong to the header only if nothing else does
                    if first > at:
                        end = _trimmed(text, first, end)
                    add_record(text, first + 1, end, state, codes, starts, names, bounds)
                    place_record(state, places, first, end, first)
                    within = _LINES
                at = following
                place[LINE] += 1
                continue
            at = first
        if cut and state[FILLED] >= state[ENOUGH]:
            result = CUT
            break
        end, bad = encode_line(text, at, stop, codes, state[FILLED], table, True, raw)
        last = _trimmed(text, at, min(end, stop))
        within = _LETTERS
        if bad < last:
            state[FILLED] += bad - at
            at = bad
            result = FAULT
            break
        state[FILLED] += last - at
        at = last
        if last == end and end < stop and text[end] == LF:
            at += 1
            place[LINE] += 1
            within = _LINES
        elif end >= stop:
            break
    place[AT] = at
    place[WITHIN] = within
    return result


@njit(cache=True, nogil=True)
def _is_blank(byte):
    return byte == 0x20 or byte == 0x09 or byte == 0x0B or byte == 0x0C


@njit(cache=True, nogil=True)
def _nonblank(text, at, stop):
    """Return the first place in text[at:stop] that is not a blank, or ``stop``."""
    while at < stop and _is_blank(text[at]):
        at += 1
    return at


@njit(cache=True, nogil=True)
def _trimmed(text, first, stop):
    """Return where text[first:stop] ends without its trailing blanks."""
    while stop > first and _is_blank(text[stop - 1]):
        stop -= 1
    return stop


@njit(cache=True, nogil=True)
def _line_end(text, at, stop):
    """Return the place of the next LF or CR; ``stop`` or more if there is none."""
    while at < stop:
        ends = equals(text, at, LF) | equals(text, at, CR)
        if ends:
            return at + np.int64(trailing_zeros(ends))
        at += 64
    return at


@njit(cache=True, nogil=True)
def _next_line(text, end, stop):
    """Return where the line after one ending at ``end`` begins; more than ``stop`` if unknown."""
    if end >= stop:
        return stop + 1
    if text[end] == LF:
        return end + 1
    if end + 1 == stop:
        return stop + 1
    return end + 1 + (text[end + 1] == LF)
