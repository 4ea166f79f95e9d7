"""Tell whether a file is complete, as far as its compression shows."""

from __future__ import annotations

import os
from typing import Any, BinaryIO

from xopen import xopen

from streamer.output.bgzf_writer import END_BLOCK
from streamer.sequences.bz2_xz import COMPRESSIONS, Members
from streamer.sequences.cram import END as CRAM_END
from streamer.sequences.cram import MAGIC as CRAM
from streamer.sequences.decompression import compression_at
from streamer.sequences.raw_file import Buffered, RawFile
from streamer.sequences.sam import MOST_START, begins_sam

_START_BYTES = 64
_AT_ONCE = 1 << 20
_CRAM_END_BYTES = 64
_BGZF = slice(12, 16)  # name and size of its extra field


def may_grow(file: BinaryIO) -> bool:
    """Whether it is uncompressed FASTQ, whose records can be read while others are written."""
    file.seek(0)
    start = file.read(MOST_START).lstrip()
    return start.startswith(b"@") and not begins_sam(start)


def has_end(file: BinaryIO, *, patient: bool) -> bool:
    """Return whether compressed data is complete.

    Also True for uncompressed or damaged files: reading them reports the damage. patient: accept
    BGZF without its end block, which some converters omit, if its last block is whole.
    """
    file.seek(0)
    start = file.read(_START_BYTES)
    if start.startswith(CRAM):
        return CRAM_END in _tail(file, _CRAM_END_BYTES)
    compression = compression_at(start)
    if compression is None:
        return True
    if start[_BGZF] == END_BLOCK[_BGZF] and not patient:
        return _tail(file, len(END_BLOCK)) == END_BLOCK
    file.seek(0)
    packed: Any = RawFile(file)
    try:
        if compression in COMPRESSIONS:
            unpacked: Any = Members(packed, compression)
        else:
            unpacked = xopen(Buffered(packed), "rb", format=compression, threads=0)
        while unpacked.read1(_AT_ONCE):
            pass
    except EOFError:
        return False
    except Exception:  # decompressors have exception types of their own
        return True
    return True


def _tail(file: BinaryIO, size: int) -> bytes:
    """Return the last bytes."""
    file.seek(-min(file.seek(0, os.SEEK_END), size), os.SEEK_END)
    return file.read()
