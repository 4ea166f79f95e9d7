"""Decompress bzip2, xz and gzip streams member by member, to the last byte.

Python's bzip2 and xz readers treat anything after a member that does not start another one as the
end of the file: after padding, which xz allows, or a damaged header, reads would be lost silently.
Its gzip reader loses up to a megabyte before the point of truncation.
"""

from __future__ import annotations

import bz2
import lzma
from collections.abc import Callable
from functools import partial
from typing import Any

from streamer.sequences.raw_file import Readable

_READ_BYTES = 1 << 17

_MEMBERS: dict[str, tuple[Callable[[], Any], bytes, bytes]] = {
    "bz2": (bz2.BZ2Decompressor, b"", b"BZh"),
    "xz": (partial(lzma.LZMADecompressor, lzma.FORMAT_XZ), b"\0", b""),
}
"""The decompressor of one member, the padding allowed between two, and how a member begins if any
other bytes may follow the last one, as gzip and bzip2 allow."""

try:  # xopen installs isal on most machines; zlib's objects have other methods
    from isal.igzip_lib import DECOMP_GZIP, IgzipDecompressor

    _MEMBERS["gz"] = partial(IgzipDecompressor, DECOMP_GZIP), b"\0", b"\x1f\x8b\x08"
except ImportError:  # pragma: no cover
    pass

COMPRESSIONS = tuple(_MEMBERS)


class TrailingBytesError(ValueError):
    """Bytes that begin no member follow the last one.

    behind_empty: the last member is empty, as the one that ends a BGZF file.
    """

    def __init__(self, *, behind_empty: bool) -> None:
        self.behind_empty = behind_empty
        super().__init__("bytes that are no block stand before the block that ends a BGZF file")


class Members:
    """Reads the members of a file, decompressed, one after the other.

    Reading raises EOFError for a truncated member, TrailingBytesError, and the decompressor's own
    error (OSError, LZMAError, IsalError) for any other fault, after all data before it has been
    returned. A beginning with one byte of the three changed is that of a damaged member.
    last: the size of the text of a member before the file's first one; None: there is none.
    """

    def __init__(self, file: Readable, compression: str, last: int | None = None) -> None:
        self._file = file
        self._begin, self._padding, self._magic = _MEMBERS[compression]
        self._member: Any = None
        self._data = b""
        self._last = last

    def read1(self, size: int = _READ_BYTES, /) -> bytes:
        """Read at most ``size`` bytes; none at the end."""
        out = b""
        while not out:
            if self._member is not None and self._member.eof:
                self._data, self._member = self._member.unused_data, None
            if not self._data and (self._member is None or self._member.needs_input):
                self._data = self._file.read1(_READ_BYTES)
                if not self._data:
                    if self._member is not None:
                        raise EOFError
                    break
            if self._member is None:
                self._data = self._data.lstrip(self._padding)
                if not self._data:
                    continue
                if self._last is not None and self._magic:
                    self._check_begin()
                self._member, self._last = self._begin(), 0
            out = self._member.decompress(self._data, size)
            self._last = (self._last or 0) + len(out)
            self._data = b""
        return out

    def _check_begin(self) -> None:
        """Raise TrailingBytesError if no member begins, not even a damaged one."""
        magic = self._magic
        while len(self._data) < len(magic) and (more := self._file.read1(_READ_BYTES)):
            self._data += more
        begin = self._data[: len(magic)]
        same = sum(one == other for one, other in zip(begin, magic, strict=False))
        if same < len(begin) - (len(begin) == len(magic)):
            raise TrailingBytesError(behind_empty=self._last == 0)
