"""Parse decompressed BAM (SAM specification 4.2): names and letters of primary records.

The lengths in a record are checked against its size before the record is read.
"""

from __future__ import annotations

import struct
from binascii import hexlify
from collections.abc import Callable, Generator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamer.sequences.read_batch import name_of
from streamer.sequences.record_buffer import (
    ENOUGH,
    FAULT,
    FILLED,
    FULL,
    MORE,
    MOST,
    RECORDS,
    RecordBuffer,
    RecordParser,
    add_record,
    place_record,
)
from streamer.sequences.sam import (
    CODE_COMPLEMENTS,
    HARD_CLIP,
    IN_READ,
    LETTER_COMPLEMENTS,
    NOT_PRIMARY,
    OPERATIONS,
    REVERSE,
    check_cigar,
    turn_back,
)
from streamer.sequences.text_window import AT, STOP, FormatError, Text
from trie.codes import LETTER_TO_CODE
from trie.cpu.intrinsics import word_at
from trie.cpu.jit import njit

MAGIC = b"BAM\x01"

_FIXED = struct.Struct("<iiBBHHHiiii")
"""refID, pos, l_read_name, mapq, bin, n_cigar_op, flag, l_seq, next_refID, next_pos, tlen."""
_OPERATIONS: Final = len(OPERATIONS)
_SIZE: Final = 4
_LEAST: Final = 32

# two letters per byte, the first in the upper half; decoded as hexadecimal digits
_LETTERS = b"=ACMGRSVTWYHKDBN"
_FROM_HEX = bytes.maketrans(b"0123456789abcdef", _LETTERS)


def _pairs(symbols: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """uint8[256, 2]: the two symbols that each byte holds."""
    return np.stack([np.repeat(symbols, 16), np.tile(symbols, 16)], axis=1)


_LETTER_PAIRS = _pairs(np.frombuffer(_LETTERS, dtype=np.uint8))
_CODE_PAIRS = LETTER_TO_CODE[_LETTER_PAIRS]


class BamParser(RecordParser):
    """Parses the records of a BAM text.

    lacks_end: returns whether the file, once fully read, lacks BGZF's end block.
    """

    def __init__(self, text: Text, lacks_end: Callable[[], bool]) -> None:
        super().__init__(text)
        self._lacks_end = lacks_end
        self._header = _header()
        self._wanted: int | None = next(self._header)

    def _take_records(self, buffer: RecordBuffer) -> int:
        text = self._text
        stop = MORE
        if self._in_records():
            codes = (_CODE_PAIRS, CODE_COMPLEMENTS)
            tables = (_LETTER_PAIRS, LETTER_COMPLEMENTS) if buffer.letters else codes
            columns = buffer.columns(2 * len(text))
            stop = _take(text.array, text.place, *tables, buffer.letters, *columns)
        if stop == MORE and text.ended:
            if len(text) or self._wanted is not None:
                raise FormatError("not valid BAM: it ends within a record or the header")
            # FASTQ writers may omit the BGZF end block; BAM writers never do
            if self._lacks_end():
                raise FormatError(
                    f"truncated after {buffer.records} records: BGZF's end block is missing"
                )
        return int(stop)

    def _in_records(self) -> bool:
        """Consume what is available of the header; return whether its end has been reached."""
        text = self._text
        while self._wanted is not None:
            taken = min(abs(self._wanted), len(text))
            if self._wanted > taken:
                return False
            data = text.start(taken) if self._wanted > 0 else b""
            text.place[AT] += taken
            if self._wanted < -taken:
                self._wanted += taken
                return False
            try:
                self._wanted = self._header.send(data)
            except StopIteration:
                self._wanted = None
        return True

    def _faulty(self) -> tuple[str, bytes]:
        size = int.from_bytes(self._text.start(_SIZE), "little", signed=True)
        if size < _LEAST:
            raise FormatError(f"not valid BAM: the record has {size} bytes, the least are {_LEAST}")
        return _record(self._text.start(_SIZE + size)[_SIZE:])


def _header() -> Generator[int, bytes, None]:
    """Yield how many header bytes are needed next; a negative number asks to skip that many."""

    def number(data: bytes) -> int:
        value = int.from_bytes(data, "little", signed=True)
        if value < 0:
            raise FormatError("not valid BAM: a length in the header is negative")
        return value

    if (yield len(MAGIC)) != MAGIC:
        raise FormatError("not valid BAM: wrong magic number")
    yield -number((yield _SIZE))
    for _ in range(number((yield _SIZE))):
        yield -number((yield _SIZE))
        number((yield _SIZE))


def _record(data: bytes) -> tuple[str, bytes]:
    """Return name and letters of a record; raise FormatError if it is invalid."""
    _, _, name_size, _, _, cigar_size, flag, letters, *_ = _FIXED.unpack_from(data)
    begin = _FIXED.size + name_size + 4 * cigar_size
    stop = begin + (letters + 1) // 2
    if letters < 0 or stop + letters > len(data):
        raise FormatError(
            "not valid BAM: the lengths of name, CIGAR and sequence do not fit the record's"
        )
    name = name_of(data[_FIXED.size : _FIXED.size + name_size].partition(b"\0")[0])
    if not flag & NOT_PRIMARY:
        numbers = np.frombuffer(data[begin - 4 * cigar_size : begin], "<u4").tolist()
        check_cigar([(number & 15, number >> 4) for number in numbers], letters, name)
    return name, hexlify(data[begin:stop]).translate(_FROM_HEX)[:letters]


@njit(cache=True, nogil=True)
def _int32(text, at):
    return np.int64(np.int32(np.uint32(word_at(text, at))))


@njit(cache=True, nogil=True)
def _take(text, place, pairs, complements, raw, state, codes, starts, names, bounds, places):
    """Append primary records to the columns; return FULL, MORE, or FAULT before an invalid one."""
    at = place[AT]
    stop = place[STOP]
    result = MORE
    while stop - at >= _SIZE:
        size = _int32(text, at)
        body = at + _SIZE
        if size < _LEAST:
            result = FAULT
            break
        if stop - body < size:
            break
        name = body + _LEAST
        letters = _int32(text, body + 16)
        name_stop = name + np.int64(text[body + 8])
        first = name_stop + 4 * (np.int64(_int32(text, body + 12)) & 0xFFFF)
        flag = np.int64(text[body + 14]) | np.int64(text[body + 15]) << 8
        last = first + (letters + 1) // 2
        if letters < 0 or last + letters > body + size:
            result = FAULT
            break
        if flag & NOT_PRIMARY:
            at = body + size
            continue
        if not _cigar_fits(text, name_stop, first, letters):
            result = FAULT
            break
        to = state[FILLED]
        seen = np.uint8(0)
        for i in range(first, last):
            one = pairs[text[i], 0]
            other = pairs[text[i], 1]
            codes[to] = one
            codes[to + 1] = other
            seen |= one | other
            to += 2
        if letters & 1:
            # the last half byte is padding
            seen = np.uint8(0)
            for i in range(state[FILLED], state[FILLED] + letters):
                seen |= codes[i]
        if not raw and seen > 7:
            result = FAULT
            break
        if flag & REVERSE:
            turn_back(codes, state[FILLED], state[FILLED] + letters, complements)
        end = name
        while end < name_stop and text[end] != 0:
            end += 1
        add_record(text, name, end, state, codes, starts, names, bounds)
        place_record(state, places, at, end, body + size)
        state[FILLED] += letters
        at = body + size
        if state[FILLED] >= state[ENOUGH] or state[RECORDS] >= state[MOST]:
            result = FULL
            break
    place[AT] = at
    return result


@njit(cache=True, nogil=True)
def _cigar_fits(text, at, end, letters):
    """Return whether a CIGAR can describe a whole read with this many letters."""
    if at == end:
        return True
    total = np.int64(0)
    while at < end:
        number = np.int64(np.uint32(word_at(text, at)))
        code = number & 15
        if code == HARD_CLIP or code >= _OPERATIONS:
            return False
        total += (number >> 4) * (IN_READ >> code & 1)
        at += 4
    return total == letters or not letters
