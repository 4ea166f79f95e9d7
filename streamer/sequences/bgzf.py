"""BGZF, the form of gzip that BAM files have (SAM specification 4.1): blocks with their sizes.

    1f 8b 08 04  6 bytes  06 00 'BC' 02 00  size - 1 of the block  deflated text  CRC  size of it

Each block is a gzip file of at most 64 KB, so that blocks can be decompressed side by side. An
empty block ends the file. Without it the file was cut, even where its last block is whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from streamer.sequences.raw_file import Readable
from streamer.sequences.text_window import BLOCK_BYTES, TextBlock, new_block

igzip_lib: Any = None
with suppress(ImportError):  # as in bz2_xz
    from isal import igzip_lib

END_BLOCK = bytes.fromhex("1f8b08040000000000ff0600424302001b0003000000000000000000")

GZIP_WITH_EXTRA = END_BLOCK[:4]
_EXTRA = slice(12, 16)  # the name and the size of BGZF's field, the first of gzip's extra fields
_FIELDS = slice(10, 16)  # and before it the size of all extra fields
_SIZE = slice(16, 18)
_LEAST, _MOST = 26, 1 << 16  # bytes of a block, packed or not
_READ_BYTES = 1 << 18
_TO_ZEROS = END_BLOCK.rstrip(b"\0")
_ZEROS = len(END_BLOCK) - len(_TO_ZEROS)


class Watched:
    """Records the beginning and the end of a file as it is read, since a pipe is read only once."""

    def __init__(self, file: Readable) -> None:
        self._file = file
        self._begin = b""
        self._end = b""
        self._zeros = 0

    def read1(self, size: int = -1, /) -> bytes:
        """At most ``size`` bytes, none at the end."""
        data = self._file.read1(size)
        if len(self._begin) < _EXTRA.stop:
            self._begin += data[: _EXTRA.stop]
        # any number of zeros may follow the last block, as after any member of gzip
        body = data.rstrip(b"\0")
        if body:
            before = self._end + bytes(min(self._zeros, len(_TO_ZEROS)))
            self._end = (before + body[-len(_TO_ZEROS) :])[-len(_TO_ZEROS) :]
            self._zeros = 0
        self._zeros += len(data) - len(body)
        return data

    def lacks_end_block(self) -> bool:
        """Whether the file, read to its end, is BGZF without the end block."""
        bgzf = self._begin.startswith(GZIP_WITH_EXTRA) and self._begin[_EXTRA] == END_BLOCK[_EXTRA]
        return bgzf and not (self._end == _TO_ZEROS and self._zeros >= _ZEROS)


def block_groups(file: Readable) -> Iterator[bytes]:
    """The file in pieces, each of a few whole blocks; what is none is a piece of its own."""
    left, data = b"", b"-"
    while data:
        data = file.read1(_READ_BYTES)
        left += data
        begin, at = 0, _block_end(left, 0)
        while at:
            following = _block_end(left, at)
            if not following or following - begin > _READ_BYTES or at - begin > BLOCK_BYTES // 4:
                yield left[begin:at]
                begin = at
            at = following
        left = left[begin:]
        if len(left) >= _MOST:
            # no block: of whatever it is, nothing is kept back
            yield left
            left = b""
    if left:
        yield left


def _block_end(data: bytes, at: int) -> int:
    """Where the block at a place ends, 0 if there is no whole one."""
    head = data[at : at + _SIZE.stop]
    if not head.startswith(GZIP_WITH_EXTRA) or head[_FIELDS] != END_BLOCK[_FIELDS]:
        return 0
    end = at + int.from_bytes(head[_SIZE], "little") + 1
    return end if at + _LEAST <= end <= len(data) else 0


def inflated(packed: bytes) -> tuple[bytes, TextBlock | None]:
    """A piece of ``block_groups``, and its text; None if it is not made of valid blocks."""
    ends = []
    at = 0
    while at := _block_end(packed, at):
        ends.append(at)
    if not ends or ends[-1] != len(packed):
        return packed, None
    sizes = [int.from_bytes(packed[end - 4 : end], "little") for end in ends]
    if max(sizes) > _MOST:
        return packed, None
    block = new_block(sum(sizes))
    begin, to = 0, block.first
    for end, size in zip(ends, sizes, strict=True):
        try:
            text = igzip_lib.decompress(packed[begin:end], igzip_lib.DECOMP_GZIP, bufsize=size or 1)
        except (igzip_lib.IsalError, EOFError, ValueError):
            return packed, None
        if len(text) != size:
            return packed, None
        block.array.data[to : to + size] = text
        begin, to = end, to + size
    return packed, block
