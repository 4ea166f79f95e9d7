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

_MEMBERS: dict[str, tuple[Callable[[], Any], bytes]] = {
    "bz2": (bz2.BZ2Decompressor, b""),
    "xz": (partial(lzma.LZMADecompressor, lzma.FORMAT_XZ), b"\0"),
}
"""The decompressor of one member, and the padding allowed between two."""

try:  # xopen installs isal on most machines; zlib's objects have other methods
    from isal.igzip_lib import DECOMP_GZIP, IgzipDecompressor

    _MEMBERS["gz"] = partial(IgzipDecompressor, DECOMP_GZIP), b"\0"
except ImportError:  # pragma: no cover
    pass

COMPRESSIONS = tuple(_MEMBERS)


class Members:
    """Reads the members of a file, decompressed, one after the other.

    Reading raises EOFError for a truncated member and the decompressor's own error (OSError,
    LZMAError, IsalError) for any other fault, after all data before it has been returned.
    """

    def __init__(self, file: Readable, compression: str) -> None:
        self._file = file
        self._begin, self._padding = _MEMBERS[compression]
        self._member: Any = None
        self._data = b""

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
                self._member = self._begin()
            out = self._member.decompress(self._data, size)
            self._data = b""
        return out
