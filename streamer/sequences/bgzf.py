"""BGZF, the gzip variant of BAM files (SAM specification 4.1): blocks with their sizes.

    1f 8b 08 04  6 bytes  06 00 'BC' 02 00  size - 1 of the block  deflated text  CRC  size of it

Each block is a gzip member of at most 64 KB, so blocks can be decompressed in parallel. An empty
block ends the file; without it the file was truncated, even if its last block is whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.output.bgzf_writer import END_BLOCK
from streamer.sequences.inflate import (
    INFLATE,
    MOST,
    inflate_blocks,
    state_of_thread,
    whole_blocks,
)
from streamer.sequences.raw_file import Packed
from streamer.sequences.text_window import TextBlock, new_block
from trie.cpu import array_pool
from trie.cpu.intrinsics import array_address

igzip_lib: Any = None
with suppress(ImportError):  # as in bz2_xz
    from isal import igzip_lib

GZIP_WITH_EXTRA = END_BLOCK[:4]
_EXTRA = slice(12, 16)  # name and size of BGZF's field, which comes first among gzip's extra fields
_READ_BYTES = 1 << 18  # per read
_GROUP_BYTES = 1 << 21  # compressed, per group: many blocks if their text is short
_TO_ZEROS = END_BLOCK.rstrip(b"\0")
_ZEROS = len(END_BLOCK) - len(_TO_ZEROS)
_ENOUGH = 4 * len(END_BLOCK)  # bytes at the end of a file that usually suffice to recognize it


class Watched:
    """Records the first and last bytes of a file as it is read, since a pipe is read only once."""

    def __init__(self, file: Packed) -> None:
        self._file = file
        self._begin = b""
        self._end = b""
        self._zeros = 0

    def read1(self, size: int = -1, /) -> bytes:
        """Read at most ``size`` bytes; none at the end."""
        data = self._file.read1(size)
        self._watch(data)
        return data

    def readinto(self, buffer: Any, /) -> int:
        """Read at most as many bytes as fit; 0 at the end."""
        count = self._file.readinto(buffer)
        self._watch(buffer[:count])
        return count

    def _watch(self, data: Any) -> None:
        if len(self._begin) < _EXTRA.stop:
            self._begin += bytes(data[: _EXTRA.stop])
        # the last block may be followed by any number of zeros, as any gzip member may
        end = bytes(data[-_ENOUGH:])
        body = end.rstrip(b"\0")
        if len(body) < len(_TO_ZEROS):
            end = bytes(data)
            body = end.rstrip(b"\0")
        if body:
            before = self._end + bytes(min(self._zeros, len(_TO_ZEROS)))
            self._end = (before + body[-len(_TO_ZEROS) :])[-len(_TO_ZEROS) :]
            self._zeros = 0
        self._zeros += len(end) - len(body)

    @property
    def bgzf(self) -> bool:
        """Whether the file begins with a block of BGZF."""
        return self._begin.startswith(GZIP_WITH_EXTRA) and self._begin[_EXTRA] == END_BLOCK[_EXTRA]

    def lacks_end_block(self) -> bool:
        """Whether the file, once fully read, is BGZF without its end block."""
        return self.bgzf and not (self._end == _TO_ZEROS and self._zeros >= _ZEROS)


def block_groups(file: Packed, most: int, *, whole: bool) -> Iterator[NDArray[np.uint8]]:
    """Split the file into pieces (uint8) of whole blocks; anything else is a piece of its own.

    most: bytes of text per piece, unless it is a single block. whole: fill pieces to about that
    size; otherwise (a pipe) no block waits for later ones.
    """
    room = _GROUP_BYTES if whole else MOST + 2 * _READ_BYTES
    packed = array_pool.empty(room, np.uint8)
    begin = stop = 0
    while True:
        end, _, full = whole_blocks(packed, begin, stop, most)
        if not full and end == begin and stop - begin >= MOST:
            # not a block: pass on everything read, whatever it is
            end, full = stop, True
        if full or (end > begin and (stop == room or not whole)):
            yield packed[begin:end]
            begin = end
            continue
        if begin:
            left = packed[begin:stop]
            packed = array_pool.empty(room, np.uint8)
            packed[: left.size] = left
            begin, end, stop = 0, end - begin, left.size
        count = file.readinto(packed.data[stop : stop + _READ_BYTES])
        if not count:
            yield from filter(len, (packed[:end], packed[end:stop]))
            return
        stop += count


def inflated(packed: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], TextBlock | None]:
    """Return a piece of ``block_groups`` and its text, or None if its blocks are invalid."""
    end, size, _ = whole_blocks(packed, 0, packed.size, 1 << 62)
    if end != packed.size:
        return packed, None
    block = new_block(size)
    inflate = _inflate_plainly if INFLATE.missing else _inflate
    return packed, block if inflate(packed, block, size) else None


def _inflate(packed: NDArray[np.uint8], block: TextBlock, size: int) -> bool:
    state = state_of_thread()
    text = np.uint64(array_address(block.array) + block.first)
    return inflate_blocks(
        INFLATE.addresses, state.address, state.words, state.halves, packed,
        np.uint64(array_address(packed)), text, size,
    )  # fmt: skip


def _inflate_plainly(packed: NDArray[np.uint8], block: TextBlock, size: int) -> bool:
    """Call isal once per block."""
    at, to = 0, block.first
    while at < packed.size:
        end, length, _ = whole_blocks(packed, at, packed.size, -1)
        data = packed[at:end].tobytes()
        try:
            text = igzip_lib.decompress(data, igzip_lib.DECOMP_GZIP, bufsize=length or 1)
        except (igzip_lib.IsalError, EOFError, ValueError):
            return False
        if len(text) != length:
            return False
        block.array.data[to : to + length] = text
        at, to = end, to + length
    return True
