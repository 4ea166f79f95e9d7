"""A plain reader of sequence files: all of a file in memory, a record after the other.

Batches, rows and errors are those that users see: of several faults that of the first record, and
in a record that of its format, then its letters, then its name.
"""

from __future__ import annotations

import codecs
import struct
from binascii import hexlify

import numpy as np
from xopen import xopen

from streamer.errors import DataError
from streamer.sequences.decompression import COMPRESSIONS, Members, TrailingBytesError
from streamer.sequences.fastq import record_of
from streamer.sequences.raw_file import FormatError
from streamer.sequences.read_batch import ReadBatch, bad_name, name_of
from streamer.sequences.source import _PROBLEMS, _READ_ERRORS, wide_encoding

MAGICS = {b"\x1f\x8b": "gz", b"BZh": "bz2", b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zst"}
MAGICS |= {bytes([number]) + b"\x2a\x4d\x18": "zst" for number in range(0x50, 0x60)}
END_BLOCK = bytes.fromhex("1f8b08040000000000ff0600424302001b0003000000000000000000")
CODES = dict(zip(b"ACGTUacgtu", (0, 1, 2, 3, 3) * 2, strict=True))
CODES |= dict.fromkeys(b"RYKMSWBDHVNrykmswbdhvn", 4)
BAM_LETTERS = bytes.maketrans(b"0123456789abcdef", b"=ACMGRSVTWYHKDBN")
TURNED = bytes.maketrans(b"ACGTRYKMBVDH", b"TGCAYRMKVBHD")
FIXED = struct.Struct("<iiBBHHHiiii")  # refID to tlen of a BAM record


def read_batches(paths, *, batch_bases=4_000_000, batch_reads=100_000):
    """The records of each file in batches that are full at a limit; DataError behind them."""
    for path in paths:
        rows, bases, fault = [], 0, None
        try:
            for number, (name, letters) in enumerate(_records(path), 1):
                codes = _codes(path, number, name, letters)
                rows.append((name, codes))
                bases += len(codes)
                if bases >= batch_bases or len(rows) >= batch_reads:
                    yield _batch(rows)
                    rows, bases = [], 0
        except DataError as error:
            fault = error
        if rows:
            yield _batch(rows)
        if fault is not None:
            raise fault


def read_letters(path):
    """(first word of the header, unchanged letters) of every record; DataError as above."""
    for number, (name, letters) in enumerate(_records(path), 1):
        _check_name(path, number, name)
        yield name, letters.decode("latin-1")


def _batch(rows):
    offsets = np.cumsum([0, *(len(codes) for _, codes in rows)])
    codes = np.frombuffer(b"".join(codes for _, codes in rows), np.uint8)
    return ReadBatch([name for name, _ in rows], offsets, codes)


def _codes(path, number, name, letters):
    for at, letter in enumerate(letters, 1):
        if letter not in CODES:
            shown = f"'{chr(letter)}'" if 32 < letter < 127 else f"byte 0x{letter:02x}"
            known = name if name.isprintable() else None
            raise DataError(
                f"{shown} is not a base", file=path, record=number, name=known, position=at
            )
    _check_name(path, number, name)
    return bytes(map(CODES.__getitem__, letters))


def _check_name(path, number, name):
    if bad := bad_name([name]):
        raise DataError(bad[1], file=path, record=number)


def _records(path):
    """(name, letters) of every record; DataError in the place of one that cannot be read."""
    packed, text, fault = _content(path)
    text = text.removeprefix(codecs.BOM_UTF8)
    if encoding := wide_encoding(text[:4]):
        problem = f"is {encoding} text: convert it with iconv -f {encoding} -t UTF-8"
        raise DataError(problem, file=path)
    start = text.lstrip()[:6]
    record, found = 0, iter(())
    if start[:1] in (b">", b"#"):
        found, record = _fasta(text, fault), 1
    elif start[:1] == b"@":
        found, record = _fastq(text, fault), 1
    elif len(start) == 6 or fault is None:
        if start.startswith(b"BAM\x01"):
            found, record = _bam(packed, text, fault), 1
        elif start:
            raise DataError("not a FASTA, FASTQ, SAM, BAM or CRAM file", file=path)
    try:
        for one in found:
            yield one
            record += 1
        if fault is not None and not record:
            raise fault
    except FormatError as error:
        known = error.name if error.name and error.name.isprintable() else None
        raise DataError(str(error), file=path, record=record, name=known) from None
    except _READ_ERRORS as error:
        known = f"cannot be read: {str(error) or type(error).__name__}"
        problem = _PROBLEMS.get(type(error)) or known
        headless = start[:1] in (b">", b"#") and not _begun(text)
        raise DataError(problem, file=path, record=None if headless else record or None) from None


def _content(path):
    """The bytes of a file, its text as far as it goes, and what ends that too early."""
    try:
        with open(path, "rb") as file:
            packed = file.read()
        compression = next((MAGICS[magic] for magic in MAGICS if packed.startswith(magic)), None)
        if compression is None:
            return packed, packed, None
        text, fault = b"", None
        with open(path, "rb") as raw:
            if compression in COMPRESSIONS:
                file = Members(raw, compression)
            else:
                file = xopen(raw, "rb", format=compression, threads=0)
            try:
                while data := file.read1(1 << 17):
                    text += data
            except TrailingBytesError as error:
                # other bytes behind gzip or bzip2 are passed over, in BGZF behind its end block
                if packed[12:14] == b"BC" and not error.behind_empty:
                    fault = error
            except _READ_ERRORS as error:
                fault = error
        return packed, text, fault
    except _READ_ERRORS as error:
        return b"", b"", error


def _lines(text):
    return text.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")


def _begun(text):
    """Whether a record of FASTA begins in the whole lines."""
    return any(line.strip().startswith(b">") for line in _lines(text)[:-1])


def _fasta(text, fault):
    """Records of lines; of a file that ends too early the last one is not whole."""
    header, letters = None, []
    lines = _lines(text)
    for number, line in enumerate(lines if fault is None else lines[:-1], 1):
        bare = line.strip()
        if bare.startswith(b">"):
            if header is not None:
                yield name_of(header), b"".join(letters)
            # blanks behind a header belong to it if none are before it
            header, letters = line[1:] if line[:1] == b">" else bare[1:], []
        elif bare and not bare.startswith(b"#"):
            if header is None:
                shown = bare[:20].decode("ascii", "replace")
                problem = (
                    f"expected '>' at the beginning of a record (line {number}), not '{shown}'"
                )
                raise FormatError("not valid FASTA: " + problem)
            letters.append(bare)
    if fault is not None:
        raise fault
    if header is not None:
        yield name_of(header), b"".join(letters)


def _fastq(text, fault):
    """Records of four lines each, with blank lines between them."""
    if fault is None and not text.endswith(b"\n"):
        text += b"\n"
    lines = text.split(b"\n")[:-1]
    at = 0
    while at < len(lines):
        if not lines[at].strip():
            at += 1
            continue
        if fault is not None and at + 4 > len(lines):
            break
        yield _named(record_of(lines[at : at + 4], at + 1))
        at += 4
    if fault is not None:
        raise fault


def _named(record):
    name, letters = record
    return name, bytes(letters)


def _bam(packed, text, fault):
    """Primary records of a BAM file (SAM specification 4.2), as the sequencer gave the reads."""
    at = 0

    def taken(size):
        nonlocal at
        if at + size > len(text):
            if fault is not None:
                raise fault
            raise FormatError("not valid BAM: it ends within a record or the header")
        at += size
        return text[at - size : at]

    def number():
        value = int.from_bytes(taken(4), "little", signed=True)
        if value < 0:
            raise FormatError("not valid BAM: a length in the header is negative")
        return value

    if taken(4) != b"BAM\x01":  # behind blanks
        raise FormatError("not valid BAM: wrong magic number")
    taken(number())
    for _ in range(number()):
        taken(number())
        number()
    records = 0
    while at < len(text) or fault is not None:
        size = int.from_bytes(taken(4), "little", signed=True)
        if size < FIXED.size:
            raise FormatError(
                f"not valid BAM: the record has {size} bytes, the least are {FIXED.size}"
            )
        if record := _bam_record(taken(size)):
            records += 1
            yield record
    bgzf = packed.startswith(END_BLOCK[:4]) and packed[12:16] == END_BLOCK[12:16]
    body, end = packed.rstrip(b"\0"), END_BLOCK.rstrip(b"\0")
    zeros = len(packed) - len(body) >= len(END_BLOCK) - len(end)
    if bgzf and not (body.endswith(end) and zeros):
        raise FormatError(f"truncated after {records} records: BGZF's end block is missing")


def _bam_record(data):
    """Name and letters; None for a record that is secondary or supplementary."""
    _, _, name_size, _, _, operations, flag, letters, _, _, _ = FIXED.unpack_from(data)
    begin = FIXED.size + name_size + 4 * operations
    stop = begin + (letters + 1) // 2
    if letters < 0 or stop + letters > len(data):
        raise FormatError(
            "not valid BAM: the lengths of name, CIGAR and sequence do not fit the record's"
        )
    if flag & 0x900:
        return None
    name = name_of(data[FIXED.size : FIXED.size + name_size].partition(b"\0")[0])
    cigar = struct.unpack_from(f"<{operations}I", data, begin - 4 * operations)
    unknown = [code % 16 for code in cigar if code % 16 > 8]
    total = sum(code // 16 for code in cigar if code % 16 in (0, 1, 4, 7, 8))
    if unknown:
        raise FormatError(f"the CIGAR has an operation that is not known, {unknown[0]}", name)
    if any(code % 16 == 5 for code in cigar):
        raise FormatError(
            "hard-clipped: letters of the read are missing; read the file it was aligned from", name
        )
    if cigar and letters and total != letters:
        raise FormatError(f"the CIGAR is of {total} letters, the sequence has {letters}", name)
    sequence = hexlify(data[begin:stop]).translate(BAM_LETTERS)[:letters]
    return name, sequence[::-1].translate(TURNED) if flag & 0x10 else sequence
