"""Makes read files of every format, fast: reads have one length, so records are rows of bytes.

Every other read is from a genome, either strand, 1 % of its bases changed; the rest is random.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.inputs import Codes
from streamer.output.output_file import END_BLOCK, packed_blocks
from trie.codes import decode
from trie.cpu.threads import usable_cores

_ERRORS = 0.01
_AT_ONCE = 6_000_000  # bases
_NAME_BYTES = 14
_PART_BYTES = 16 * 0xFF00  # compressed by one thread, whole blocks of BGZF
_GZIP_HEAD = bytes.fromhex("1f8b08000000000000ff")
_LAST_DEFLATED = b"\x03\x00"  # an empty block
# qualities in few bins, as current machines write them
_QUALITIES = np.frombuffer(b"#,:FFFFFFFF", dtype=np.uint8)
_NIBBLES = np.array([1, 2, 4, 8], dtype=np.uint8)  # of A, C, G, T in BAM
_BAM_HEAD = b"BAM\x01" + bytes(8)

Rows = NDArray[np.uint8]


def reads_of(genome: Codes, bases: int, length: int, seed: int) -> Iterator[Rows]:
    """Arrays of base codes, uint8[reads, length], about ``bases`` bases in total."""
    rng = np.random.default_rng(seed)
    left = max(2, bases // length)
    while left > 0:
        count = min(left, max(2, _AT_ONCE // length))
        rows = rng.integers(0, 4, (count, length), dtype=np.uint8)
        starts = rng.integers(0, genome.size - length + 1, (count + 1) // 2)
        own = np.lib.stride_tricks.sliding_window_view(genome, length)[starts].copy()
        turned = rng.random(len(own)) < 0.5
        own[turned] = 3 - own[turned, ::-1]
        wrong = rng.integers(0, own.size, int(_ERRORS * own.size))
        own.ravel()[wrong] ^= rng.integers(1, 4, wrong.size, dtype=np.uint8)
        rows[::2] = own
        yield rows
        left -= count


def _columns(*parts: Rows | bytes, rows: int) -> bytes:
    """The parts side by side; bytes are the same in every row."""
    wide = [
        np.broadcast_to(np.frombuffer(part, np.uint8), (rows, len(part)))
        if isinstance(part, bytes)
        else part
        for part in parts
    ]
    return np.hstack(wide).tobytes()


def _names(first: int, rows: int) -> Rows:
    """Names of one length, uint8[rows, _NAME_BYTES]."""
    digits = np.arange(first, first + rows)[:, np.newaxis] // 10 ** np.arange(9, -1, -1) % 10 + 48
    read = np.broadcast_to(np.frombuffer(b"read", np.uint8), (rows, 4))
    names: Rows = np.hstack([read, digits.astype(np.uint8)])
    return names


def _fastq(codes: Rows, first: int, rng: np.random.Generator) -> bytes:
    rows, length = codes.shape
    letters = decode(codes.ravel()).reshape(rows, length)
    quality = _QUALITIES[rng.integers(0, _QUALITIES.size, codes.shape, dtype=np.uint8)]
    return _columns(b"@", _names(first, rows), b"\n", letters, b"\n+\n", quality, b"\n", rows=rows)


def _bam(codes: Rows, first: int, rng: np.random.Generator) -> bytes:
    rows, length = codes.shape
    nibbles = np.zeros((rows, length + length % 2), np.uint8)
    nibbles[:, :length] = _NIBBLES[codes]
    packed = np.asarray(nibbles[:, ::2] << 4 | nibbles[:, 1::2], np.uint8)
    size = 32 + _NAME_BYTES + 1 + packed.shape[1] + length
    fixed = (-1, -1, _NAME_BYTES + 1, 0, 4680, 0, 4, length, -1, -1, 0)
    head = struct.pack("<iiiBBHHHiiii", size, *fixed)
    quality = rng.integers(2, 41, codes.shape, dtype=np.uint8)
    return _columns(head, _names(first, rows), b"\0", packed, quality, rows=rows)


def _deflated(text: bytes) -> bytes:
    """A part of a gzip file of one member, which further parts may follow."""
    compress = zlib.compressobj(6, wbits=-15)
    return compress.compress(text) + compress.flush(zlib.Z_FULL_FLUSH)


_FORMATS: dict[str, tuple[Callable[..., bytes], Callable[[bytes], bytes] | None, bytes]] = {
    "fq": (_fastq, None, b""),
    "fq.gz": (_fastq, _deflated, b""),
    "fq.bgz": (_fastq, packed_blocks, b""),
    "bam": (_bam, packed_blocks, _BAM_HEAD),
}
"""By suffix: how records are made and packed, and the header before them."""

FORMATS = tuple(_FORMATS)


def write_reads(path: Path, genome: Codes, bases: int, length: int, seed: int = 7) -> None:
    """Write the reads in the format of the suffix; they are the same in every format."""
    suffix = path.name.partition(".")[2]
    make, pack, head = _FORMATS[suffix]
    rng = np.random.default_rng(seed + 1)
    first = size = checksum = 0
    with path.open("wb") as file, ThreadPoolExecutor(usable_cores()) as pool:
        if pack is _deflated:
            file.write(_GZIP_HEAD)
        for codes in reads_of(genome, bases, length, seed):
            text = make(codes, first, rng)
            if first == 0:
                text = head + text
            first += len(codes)
            if pack is None:
                file.write(text)
                continue
            size, checksum = size + len(text), zlib.crc32(text, checksum)
            parts = (text[at : at + _PART_BYTES] for at in range(0, len(text), _PART_BYTES))
            file.writelines(pool.map(pack, parts))
        if pack is _deflated:
            file.write(_LAST_DEFLATED + struct.pack("<II", checksum, size & 0xFFFFFFFF))
        elif pack is not None:
            file.write(END_BLOCK)
