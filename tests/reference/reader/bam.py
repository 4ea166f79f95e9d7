"""BAM (SAM specification 4.2), decompressed: names and letters of primary records.

The lengths in a record are checked against its size before anything is read from it.
"""

from __future__ import annotations

import struct
from binascii import hexlify
from collections.abc import Iterator
from typing import BinaryIO

from streamer.sequences.read_batch import name_of
from streamer.sequences.text_window import FormatError

MAGIC = b"BAM\x01"

_FIXED = struct.Struct("<iiBBHHHiiii")
"""refID, pos, l_read_name, mapq, bin, n_cigar_op, flag, l_seq, next_refID, next_pos, tlen."""
_READ_BYTES = 1 << 20

# two letters a byte, the first in the upper half; decoded through hexadecimal digits
_LETTERS = bytes.maketrans(b"0123456789abcdef", b"=ACMGRSVTWYHKDBN")
_TURNED = bytes.maketrans(b"ACGTRYKMBVDH", b"TGCAYRMKVBHD")


def bam_records(file: BinaryIO) -> Iterator[tuple[bytes, bytes]]:
    """(name, letters) of every record in order; FormatError for an invalid one."""
    if _exactly(file, len(MAGIC)) != MAGIC:
        problem = "not valid BAM: wrong magic number"
        raise FormatError(problem)
    _skip(file, _number(file))
    for _ in range(_number(file)):
        _skip(file, _number(file))
        _number(file)
    while start := file.read(1):
        size = int.from_bytes(start + _exactly(file, 3), "little", signed=True)
        if size < _FIXED.size:
            problem = f"not valid BAM: the record has {size} bytes, the least are {_FIXED.size}"
            raise FormatError(problem)
        if record := _record(_exactly(file, size)):
            yield record


def _record(data: bytes) -> tuple[bytes, bytes] | None:
    """None for a record that is secondary or supplementary."""
    _, _, name_size, _, _, cigar_size, flag, letters, _, _, _ = _FIXED.unpack_from(data)
    begin = _FIXED.size + name_size + 4 * cigar_size
    stop = begin + (letters + 1) // 2
    if letters < 0 or stop + letters > len(data):
        problem = "not valid BAM: the lengths of name, CIGAR and sequence do not fit the record's"
        raise FormatError(problem)
    if flag & 0x100 or flag & 0x800:
        return None
    name = data[_FIXED.size : _FIXED.size + name_size].partition(b"\0")[0]
    cigar = struct.unpack_from(f"<{cigar_size}I", data, begin - 4 * cigar_size)
    _check([(each % 16, each // 16) for each in cigar], letters, name)
    sequence = hexlify(data[begin:stop]).translate(_LETTERS)[:letters]
    return name, sequence[::-1].translate(_TURNED) if flag & 0x10 else sequence


def _check(cigar: list[tuple[int, int]], letters: int, name: bytes) -> None:
    problem = ""
    if unknown := [code for code, _ in cigar if code > 8]:
        problem = f"the CIGAR has an operation that is not known, {unknown[0]}"
    elif any(code == 5 for code, _ in cigar):
        problem = "hard-clipped: letters of the read are missing; read the file it was aligned from"
    elif cigar and letters:
        # M, I, S, = and X
        total = sum(length for code, length in cigar if code in {0, 1, 4, 7, 8})
        if total != letters:
            problem = f"the CIGAR is of {total} letters, the sequence has {letters}"
    if problem:
        raise FormatError(problem, name_of(name))


def _number(file: BinaryIO) -> int:
    """A length, int32."""
    number = int.from_bytes(_exactly(file, 4), "little", signed=True)
    if number < 0:
        problem = "not valid BAM: a length in the header is negative"
        raise FormatError(problem)
    return number


def _exactly(file: BinaryIO, size: int) -> bytes:
    """``size`` bytes, read piecewise: a damaged length must not allocate memory."""
    parts = []
    while size:
        part = file.read(min(size, _READ_BYTES))
        if not part:
            problem = "not valid BAM: it ends within a record or the header"
            raise FormatError(problem)
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _skip(file: BinaryIO, size: int) -> None:
    while size:
        size -= len(_exactly(file, min(size, _READ_BYTES)))
