"""The end of BGZF, the form of gzip that BAM files have (SAM specification 4.1).

An empty block ends the file. Without it the file was cut, even where its last block is whole.
"""

from __future__ import annotations

from streamer.sequences.raw_file import Readable

END_BLOCK = bytes.fromhex("1f8b08040000000000ff0600424302001b0003000000000000000000")

_GZIP_WITH_EXTRA = END_BLOCK[:4]
_EXTRA = slice(12, 16)  # the name and the size of BGZF's field, the first of gzip's extra fields
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
        bgzf = self._begin.startswith(_GZIP_WITH_EXTRA) and self._begin[_EXTRA] == END_BLOCK[_EXTRA]
        return bgzf and not (self._end == _TO_ZEROS and self._zeros >= _ZEROS)
