"""Parse SAM (specification 1): header lines, then one tab-separated line per record.

    @RG ID:run_model_barcode04 ...
    name FLAG ref pos mapq CIGAR rnext pnext tlen letters qualities ch:i:12 st:Z:... RG:Z:...
    └ a kernel takes primary records as long as they are valid; the one it stops at is read again

The last line may lack its line end. Without a header, the first line identifies the file as SAM.

What SAM and BAM share: restoring aligned reads as sequenced (SAM specification 1.4).

Only primary records count; secondary and supplementary ones repeat a read or parts of it. Reads on
the reverse strand are reverse-complemented. Hard-clipped reads cannot be restored, because bases
are missing.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamer.sequences.context import number_at
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
from streamer.sequences.text_window import AT, LINE, SEEN, STOP, FormatError
from trie.codes import LETTER_TO_CODE
from trie.cpu.intrinsics import trailing_zeros
from trie.cpu.jit import njit
from trie.cpu.text_scan import equals

REVERSE: Final = 0x10
"""FLAG bit: the sequence is reverse-complemented."""

NOT_PRIMARY: Final = 0x900
"""FLAG bits: secondary or supplementary alignment."""

OPERATIONS: Final = "MIDNSHP=X"
"""The CIGAR operations, by code."""

HARD_CLIP: Final = 5
IN_READ: Final = 0b1_1001_0011
"""Bit mask of the operations that consume bases of the read: M I S = X."""

_COMPLEMENTS = bytes.maketrans(b"ACGTURYKMBVDHacgturykmbvdh", b"TGCAAYRMKVBHDtgcaayrmkvbhd")
LETTER_COMPLEMENTS: NDArray[np.uint8] = np.frombuffer(_COMPLEMENTS, dtype=np.uint8)
"""uint8[256]: the complement of each letter."""

CODE_COMPLEMENTS: NDArray[np.uint8] = np.arange(256, dtype=np.uint8)
"""uint8[256]: the complement of each base code."""
CODE_COMPLEMENTS[LETTER_TO_CODE[np.frombuffer(b"ACGT", dtype=np.uint8)]] = LETTER_TO_CODE[
    np.frombuffer(b"TGCA", dtype=np.uint8)
]


def check_cigar(operations: list[tuple[int, int]], letters: int, name: str) -> None:
    """Raise FormatError if (code, length) pairs cannot describe a whole read of so many letters."""
    codes = [code for code, _ in operations]
    if bad := next((code for code in codes if code >= len(OPERATIONS)), None):
        raise FormatError(f"the CIGAR has an operation that is not known, {bad}", name)
    if HARD_CLIP in codes:
        raise FormatError(
            "hard-clipped: letters of the read are missing; read the file it was aligned from", name
        )
    total = sum(length for code, length in operations if IN_READ >> code & 1)
    if operations and letters and total != letters:
        raise FormatError(f"the CIGAR is of {total} letters, the sequence has {letters}", name)


@njit(cache=True, nogil=True)
def turn_back(codes, first, stop, complements):
    """Reverse-complement codes[first:stop] in place."""
    last = stop - 1
    while first < last:
        codes[first], codes[last] = complements[codes[last]], complements[codes[first]]
        first += 1
        last -= 1
    if first == last:
        codes[first] = complements[codes[first]]


MOST_START = 300
"""Bytes of a file that decide whether it is SAM; a name has at most 254."""

_START = re.compile(rb"@(?:HD|SQ|RG|PG)\t[A-Za-z][A-Za-z0-9]:|@CO\t|[!-?A-~]{1,254}\t[0-9]{1,5}\t")
_PART = re.compile(
    rb"@|@[HSRPC][DQGO]?|@(?:HD|SQ|RG|PG)\t[A-Za-z]?[A-Za-z0-9]?|[!-?A-~]+(?:\t[0-9]*)?"
)
_FIELDS: Final = 11
_FLAG, _CIGAR, _LETTERS, _QUALITIES = 1, 5, 9, 10
_CIGAR_TEXT = re.compile(r"\*|(?:[0-9]{1,9}[A-Za-z=])+")
_TAB: Final = np.uint8(0x09)
_LF: Final = np.uint8(0x0A)
_CR, _STAR, _AT_SIGN = 0x0D, 0x2A, 0x40
_SAME = np.arange(256, dtype=np.uint8)
_CODES = np.full(256, len(OPERATIONS), dtype=np.uint8)
_CODES[np.frombuffer(OPERATIONS.encode(), dtype=np.uint8)] = np.arange(len(OPERATIONS))


def begins_sam(start: bytes) -> bool:
    """Return whether a file starts as SAM does; ``start``: its first MOST_START bytes, or all."""
    return _START.match(start) is not None


def may_begin_sam(start: bytes) -> bool:
    """Return whether more bytes are needed to decide."""
    told = start[:1] in (b">", b"#") or len(start) == MOST_START
    return not told and _PART.fullmatch(start) is not None


class SamParser(RecordParser):
    """Parses the records of a SAM text."""

    def _take_records(self, buffer: RecordBuffer) -> int:
        text = self._text
        if text.ended:
            text.end_line()
        tables = (
            (_SAME, LETTER_COMPLEMENTS) if buffer.letters else (LETTER_TO_CODE, CODE_COMPLEMENTS)
        )
        columns = buffer.columns(len(text))
        return int(_take(text.array, text.place, *tables, buffer.letters, _CODES, *columns))

    def _faulty(self) -> tuple[str, bytes]:
        line = self._text.start().partition(b"\n")[0].removesuffix(b"\r")
        try:
            return _record(line)
        except FormatError as error:
            raise FormatError(f"line {self._text.place[LINE]}: {error}", error.name) from None


def _record(line: bytes) -> tuple[str, bytes]:
    """Return name and letters of a record; raise FormatError if it is invalid."""
    if line.startswith(b"@"):
        raise FormatError("a line of a header amid the records")
    fields = line.split(b"\t")
    name = name_of(fields[0])
    if len(fields) < _FIELDS:
        raise FormatError(
            f"not valid SAM: {len(fields)} of at least {_FIELDS} fields; the file may be cut", name
        )
    flag, cigar, letters, qualities = (fields[at] for at in (_FLAG, _CIGAR, _LETTERS, _QUALITIES))
    if not (re.fullmatch(b"[0-9]+", flag) and int(flag) < 1 << 16):
        raise FormatError("not valid SAM: FLAG is not a number of 16 bits", name)
    letters = b"" if letters == b"*" else letters
    if qualities != b"*" and len(qualities) != len(letters):
        raise FormatError(
            f"{len(qualities)} qualities for {len(letters)} letters; the file may be cut", name
        )
    text = cigar.decode("latin-1")
    if not _CIGAR_TEXT.fullmatch(text):
        raise FormatError("not valid SAM: a CIGAR is numbers, each with an operation", name)
    parts = re.findall(r"([0-9]+)(.)", text)
    if bad := next((one for _, one in parts if one not in OPERATIONS), None):
        raise FormatError(f"the CIGAR has an operation that is not known, {bad}", name)
    check_cigar([(OPERATIONS.index(one), int(size)) for size, one in parts], len(letters), name)
    return name, letters


@njit(cache=True, nogil=True)
def _take(
    text, place, table, complements, raw, operations, state, codes, starts, names, bounds, places
):
    """Append whole primary records; return FULL, MORE, or FAULT before a faulty one.

    place[SEEN]: 1 once the header has been passed.
    """
    tabs = np.empty(_FIELDS, dtype=np.int64)
    at = place[AT]
    stop = place[STOP]
    result = MORE
    while at < stop:
        end = _find(text, at, stop, _LF)
        if end == stop:
            break
        line = end
        end -= end > at and text[end - 1] == _CR
        header = text[at] == _AT_SIGN and not place[SEEN]
        if end > at and not header:
            place[SEEN] = 1
            if not _fields(text, at, end, tabs):
                result = FAULT
                break
            flag = number_at(text, tabs[0] + 1, tabs[_FLAG])
            if text[at] == _AT_SIGN or flag < 0 or flag > 0xFFFF:
                result = FAULT
                break
            if not flag & NOT_PRIMARY:
                first, last = tabs[_LETTERS - 1] + 1, tabs[_LETTERS]
                if last - first == 1 and text[first] == _STAR:
                    last = first
                quality = tabs[_LETTERS] + 1
                qualities = tabs[_QUALITIES] - quality
                missing = qualities == 1 and text[quality] == _STAR
                cigar = tabs[_CIGAR - 1] + 1
                fine = _cigar_fits(text, cigar, tabs[_CIGAR], operations, last - first)
                if not fine or (qualities != last - first and not missing):
                    result = FAULT
                    break
                to = state[FILLED]
                seen = np.uint8(0)
                for i in range(first, last):
                    code = table[text[i]]
                    codes[to + i - first] = code
                    seen |= code
                if not raw and seen > 7:
                    result = FAULT
                    break
                if flag & REVERSE:
                    turn_back(codes, to, to + last - first, complements)
                add_record(text, at, tabs[0], state, codes, starts, names, bounds)
                place_record(state, places, at, quality, end)
                state[FILLED] += last - first
        at = line + 1
        place[LINE] += 1
        if state[FILLED] >= state[ENOUGH] or state[RECORDS] >= state[MOST]:
            result = FULL
            break
    place[AT] = at
    return result


@njit(cache=True, nogil=True)
def _find(text, at, stop, byte):
    """Return the first place of the byte, or ``stop``."""
    while at < stop:
        found = equals(text, at, byte)
        if found:
            return min(stop, at + np.int64(trailing_zeros(found)))
        at += 64
    return stop


@njit(cache=True, nogil=True)
def _fields(text, at, end, tabs):
    """Find the ends of a line's first fields; return whether all of them are there."""
    for field in range(_FIELDS):
        tabs[field] = at = _find(text, at, end, _TAB)
        if at == end:
            return field == _FIELDS - 1
        at += 1
    return True


@njit(cache=True, nogil=True)
def _cigar_fits(text, at, end, operations, letters):
    """Return whether a CIGAR can describe a whole read with this many letters."""
    if end - at == 1 and text[at] == _STAR:
        return True
    total = np.int64(0)
    if at == end:
        return False
    while at < end:
        first = at
        while at < end and 0x30 <= text[at] <= 0x39:
            at += 1
        length = number_at(text, first, at)
        if at == end or length < 0 or operations[text[at]] >= 9:
            return False
        code = np.int64(operations[text[at]])
        if code == HARD_CLIP:
            return False
        total += length * (IN_READ >> code & 1)
        at += 1
    return total == letters or not letters
