"""Write BGZF (``streamer.sequences.bgzf``): gzip in blocks, which are read in parallel."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from typing import Any

END_BLOCK = bytes.fromhex("1f8b08040000000000ff0600424302001b0003000000000000000000")
"""The empty block that ends a file."""

_HEAD = 16  # bytes of a block before its size
_AROUND = 26  # bytes of a block besides the deflated text
_TEXT_BYTES = 0xFF00  # of text per block, as in other programs


def packed_blocks(text: bytes) -> bytes:
    """Return BGZF blocks that hold the text, without the block that ends a file."""
    blocks = []
    for at in range(0, len(text), _TEXT_BYTES):
        part = text[at : at + _TEXT_BYTES]
        packer = zlib.compressobj(6, wbits=-zlib.MAX_WBITS)
        packed = packer.compress(part) + packer.flush()
        size = struct.pack("<H", len(packed) + _AROUND - 1)
        ends = struct.pack("<II", zlib.crc32(part), len(part))
        blocks.append(END_BLOCK[:_HEAD] + size + packed + ends)
    return b"".join(blocks)


class BgzfWriter:
    """Compresses what is written to a file, which stays open."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._text = bytearray()

    def write(self, data: bytes | memoryview) -> int:
        """Take all of the data; write whole blocks."""
        self._text += data
        whole = len(self._text) // _TEXT_BYTES * _TEXT_BYTES
        self._file.write(packed_blocks(bytes(self._text[:whole])))
        del self._text[:whole]
        return len(data)

    def writelines(self, parts: Iterable[bytes | memoryview]) -> None:
        """Write one part after another."""
        for part in parts:
            self.write(part)

    def flush(self) -> None:
        """Write everything, in a short block if need be."""
        self._file.write(packed_blocks(bytes(self._text)))
        self._text.clear()
        self._file.flush()

    def close(self) -> None:
        """Write the rest and the end block."""
        self.flush()
        self._file.write(END_BLOCK)
