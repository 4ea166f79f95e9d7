"""Parse SAM (specification 1), BAM (4.2) and CRAM: names and letters of reads as sequenced.

    @RG ID:run_model_barcode04 ...
    name FLAG ref pos mapq CIGAR rnext pnext tlen letters qualities ch:i:12 st:Z:... RG:Z:...
    └ a kernel takes primary records as long as they are valid; the one it stops at is read again

Only primary records count; secondary and supplementary ones repeat a read or parts of it. Reads on
the reverse strand are reverse-complemented (1.4). Hard-clipped reads cannot be restored, because
bases are missing.

SAM without a header is identified by its first line; its last line may lack the line end. In BAM
the lengths in a record are checked against its size before the record is read. pysam (htslib)
decodes CRAM to SAM text, through a pipe since its start has been read to recognize the format:

    file -> thread -> pipe -> pysam -> lines
"""

import contextlib
import os
import re
import struct
import threading
from binascii import hexlify
from collections.abc import Callable, Generator, Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streamer.errors import DataError
from streamer.sequences.context import number_at
from streamer.sequences.raw_file import (
    AT,
    BLOCK_BYTES,
    LINE,
    SEEN,
    STOP,
    FormatError,
    Readable,
    Text,
    TextBlock,
    new_block,
)
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
    RecordForm,
    RecordParser,
    RecordText,
    add_record,
    place_record,
)
from streamer.sequences.record_limit import most_bases, over_limit
from trie.codes import LETTER_TO_CODE
from trie.cpu.intrinsics import trailing_zeros, word_at
from trie.cpu.jit import njit
from trie.cpu.vectors import equals

PAIRED: Final = 0x1
"""FLAG bit: the read has a mate."""

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
    if bad := next((code for _, code in parts if code not in OPERATIONS), None):
        raise FormatError(f"the CIGAR has an operation that is not known, {bad}", name)
    check_cigar([(OPERATIONS.index(code), int(size)) for size, code in parts], len(letters), name)
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
        equal = equals(text, at, byte)
        if equal:
            return min(stop, at + np.int64(trailing_zeros(equal)))
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


MAGIC = b"CRAM"

END = b"\xe0EOF"  # in the container that ends a file, and in no other one (CRAM specification 9)
_READ_BYTES = 1 << 17

_NEEDED = "CRAM needs pysam: pip install '.[cram]' in a clone"
_DAMAGED = (
    "damaged or truncated CRAM, or its reference is not found: set REF_PATH, or convert the file "
    "with samtools fastq -T '*' --reference FASTA"
)


def cram_blocks(file: Readable, shown: str) -> Iterator[TextBlock]:
    """Yield blocks of header and records as SAM text; raise DataError if the CRAM is invalid."""
    try:
        import pysam
    except ImportError:
        raise DataError(_NEEDED, file=shown) from None
    # errors are raised, so htslib need not print them as well
    pysam.set_verbosity(0)
    pump = _Pump(file)
    try:
        with (
            open(pump.end, "rb", closefd=False) as pipe,
            pysam.AlignmentFile(pipe, "rc", check_sq=False) as cram,
        ):
            yield from _blocks(cram, shown)
        pump.finish()
    except (OSError, ValueError, EOFError):
        pump.check()
        raise DataError(_DAMAGED, file=shown) from None
    finally:
        pump.close()


def _blocks(cram: Any, shown: str) -> Iterator[TextBlock]:
    number = 1
    lines = [str(cram.header).encode()]
    size = len(lines[0])
    for record in cram.fetch(until_eof=True):
        if record.query_length > most_bases():
            if size:
                yield _block(b"".join(lines))
            raise DataError(over_limit(), file=shown, record=number, name=record.query_name)
        number += not record.flag & NOT_PRIMARY
        lines.append(record.to_string().encode() + b"\n")
        size += len(lines[-1])
        if size > BLOCK_BYTES:
            yield _block(b"".join(lines))
            lines, size = [], 0
    if size:
        yield _block(b"".join(lines))


def _block(data: bytes) -> TextBlock:
    block = new_block(len(data))
    block.array.data[block.first : block.stop] = data
    return block


class _Pump:
    """A thread that writes a file into a pipe; ``end`` is the reading end."""

    _LAST = 38  # bytes of the container that ends a file

    def __init__(self, file: Readable) -> None:
        self._file = file
        self.end, self._begin = os.pipe()
        self._error: BaseException | None = None
        self._tail = b""
        self._thread = threading.Thread(target=self._run, name="cram", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            with open(self._begin, "wb", buffering=0) as pipe:
                while data := memoryview(self._file.read1(_READ_BYTES)):
                    self._tail = (self._tail + data[-self._LAST :])[-self._LAST :]
                    while data:
                        data = data[pipe.write(data) :]
        except BrokenPipeError:
            pass  # the reader has closed the pipe
        except BaseException as error:
            self._error = error

    def finish(self) -> None:
        """Raise the error of reading, or EOFError if the end container is missing."""
        while os.read(self.end, _READ_BYTES):
            pass
        self.check()
        if END not in self._tail:
            raise EOFError

    def check(self) -> None:
        """Raise the error of the thread, if any."""
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Stop the thread."""
        with contextlib.suppress(OSError):
            os.close(self.end)
        self._thread.join(1.0)


BAM_MAGIC = b"BAM\x01"

_FIXED = struct.Struct("<iiBBHHHiiii")
"""refID, pos, l_read_name, mapq, bin, n_cigar_op, flag, l_seq, next_refID, next_pos, tlen."""
_OPERATIONS: Final = len(OPERATIONS)
_SIZE: Final = 4
_LEAST: Final = 32

# two letters per byte, the first in the upper half; decoded as hexadecimal digits
_BAM_LETTERS = b"=ACMGRSVTWYHKDBN"
_FROM_HEX = bytes.maketrans(b"0123456789abcdef", _BAM_LETTERS)


def _pairs(symbols: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """uint8[256, 2]: the two symbols that each byte holds."""
    return np.stack([np.repeat(symbols, 16), np.tile(symbols, 16)], axis=1)


_LETTER_PAIRS = _pairs(np.frombuffer(_BAM_LETTERS, dtype=np.uint8))
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
            stop = _take_binary(text.array, text.place, *tables, buffer.letters, *columns)
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
        return _bam_record(self._text.start(_SIZE + size)[_SIZE:])


def _header() -> Generator[int, bytes, None]:
    """Yield how many header bytes are needed next; a negative number asks to skip that many."""

    def number(data: bytes) -> int:
        value = int.from_bytes(data, "little", signed=True)
        if value < 0:
            raise FormatError("not valid BAM: a length in the header is negative")
        return value

    if (yield len(BAM_MAGIC)) != BAM_MAGIC:
        raise FormatError("not valid BAM: wrong magic number")
    yield -number((yield _SIZE))
    for _ in range(number((yield _SIZE))):
        yield -number((yield _SIZE))
        number((yield _SIZE))


def _bam_record(data: bytes) -> tuple[str, bytes]:
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
def _take_binary(text, place, pairs, complements, raw, state, codes, starts, names, bounds, places):
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
        if not _bam_cigar_fits(text, name_stop, first, letters):
            result = FAULT
            break
        to = state[FILLED]
        seen = np.uint8(0)
        for i in range(first, last):
            high = pairs[text[i], 0]
            other = pairs[text[i], 1]
            codes[to] = high
            codes[to + 1] = other
            seen |= high | other
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
def _bam_cigar_fits(text, at, end, letters):
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


def sam_header(text: bytes) -> tuple[bytes, bytes]:
    """Return the header of a SAM text, twice: as it is, and its lines."""
    stop = 0
    while text[stop : stop + 1] == b"@":
        stop = text.find(b"\n", stop) + 1 or len(text)
    return text[:stop], text[:stop]


def bam_header(text: bytes) -> tuple[bytes, bytes]:
    """Return what precedes the records of a BAM text, and the lines in it."""
    begin = len(BAM_MAGIC) + _SIZE
    at = begin + int.from_bytes(text[len(BAM_MAGIC) : begin], "little")
    lines = text[begin:at].rstrip(b"\0")
    references = int.from_bytes(text[at : at + _SIZE], "little")
    at += _SIZE
    for _ in range(references):
        at += 2 * _SIZE + int.from_bytes(text[at : at + _SIZE], "little")
    return text[:at], lines


_MISSING_QUALITY = b'"'  # 1, as from samtools fastq


def _fastq(name: bytes, letters: bytes, qualities: bytes, flag: int) -> bytes:
    if flag & REVERSE:
        letters, qualities = letters[::-1].translate(_COMPLEMENTS), qualities[::-1]
    return b"@%b\n%b\n+\n%b\n" % (name, letters, qualities)


def fastq_of_line(line: bytes) -> bytes:
    """Return a SAM record as FASTQ: the read as sequenced, without tags."""
    fields = line.split(b"\t", _FIELDS)
    letters = b"" if fields[_LETTERS] == b"*" else fields[_LETTERS]
    qualities = fields[_QUALITIES]
    if qualities == b"*" != letters:
        qualities = _MISSING_QUALITY * len(letters)
    return _fastq(fields[0], letters, qualities, int(fields[_FLAG]))


_TO_TEXT = bytes(min(quality + 33, 126) for quality in range(256))


def fastq_of_record(data: bytes) -> bytes:
    """Return a BAM record, with its size before it, as FASTQ: the read as sequenced."""
    data = data[_SIZE:]
    _, _, name_size, _, _, cigar_size, flag, count, *_ = _FIXED.unpack_from(data)
    begin = _FIXED.size + name_size + 4 * cigar_size
    stop = begin + (count + 1) // 2
    letters = hexlify(data[begin:stop]).translate(_FROM_HEX)[:count]
    raw = data[stop : stop + count]
    qualities = _MISSING_QUALITY * count if raw[:1] == b"\xff" else raw.translate(_TO_TEXT)
    return _fastq(data[_FIXED.size : begin].partition(b"\0")[0], letters, qualities, flag)


def is_paired(text: RecordText, name: str) -> bool:
    """Return whether the first record of a SAM or BAM text is a read of a pair."""
    (span,), places = text.joined()
    record = span.text[places[0, 0] : places[0, 2]].tobytes()
    if name == "BAM":
        return bool(_FIXED.unpack_from(record[_SIZE:])[6] & PAIRED)
    return bool(int(record.split(b"\t", 2)[1]) & PAIRED)


def skips_records(text: RecordText, form: RecordForm, *, first: bool) -> bool:
    """Return whether a piece of a file lacks records that are not primary; ``first``: its first."""
    (span,), places = text.joined()
    begin = span.begin + (len(form.header) if first else 0)
    gaps = np.append(places[:, 0], span.stop) - np.insert(places[:, 2], 0, begin)
    return bool((gaps > (0 if form.name == "BAM" else len(b"\r\n"))).any())
