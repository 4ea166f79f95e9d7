"""bzip2 and xz streams member by member, to the last byte.

Python's own readers take what follows a member and begins no other for the end of the file: behind
the padding that xz allows, or a damaged header, reads would be missing and nothing would say so.
"""

from __future__ import annotations

import bz2
import io
import lzma
from collections.abc import Callable
from functools import partial
from typing import Any

_READ_BYTES = 1 << 17

_MEMBERS: dict[str, tuple[Callable[[], Any], bytes]] = {
    "bz2": (bz2.BZ2Decompressor, b""),
    "xz": (partial(lzma.LZMADecompressor, lzma.FORMAT_XZ), b"\0"),
}
"""What decompresses one member, and what may stand between two."""

COMPRESSIONS = tuple(_MEMBERS)


class Members(io.RawIOBase):
    """The members of a file, decompressed, one after the other.

    file: with a method ``read1``. Reading raises EOFError where a member is cut off, and what the
    decompressor raises (OSError, LZMAError) for what is no member.
    """

    def __init__(self, file: Any, compression: str) -> None:
        self._file = file
        self._begin, self._padding = _MEMBERS[compression]
        self._member: Any = None
        self._data = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        out = b""
        while not out:
            if self._member is not None and self._member.eof:
                self._data, self._member = self._member.unused_data, None
            if not self._data and (self._member is None or self._member.needs_input):
                self._data = self._file.read1(_READ_BYTES)
                if not self._data:
                    if self._member is not None:
                        raise EOFError
                    return 0
            if self._member is None:
                self._data = self._data.lstrip(self._padding)
                if not self._data:
                    continue
                self._member = self._begin()
            out = self._member.decompress(self._data, len(buffer))
            self._data = b""
        buffer[: len(out)] = out
        return len(out)
