"""Internal sizes of a journal; tests make them small."""

from __future__ import annotations

from typing import NamedTuple


class Sizes(NamedTuple):
    """file_bytes: reserved per data file. page_bytes: of SQLite, and the alignment of groups.

    checkpoint_pages: SQLite's log is copied into the index whenever it has grown by this.
    """

    file_bytes: int = 256 << 20
    page_bytes: int = 4096
    checkpoint_pages: int = 4000

    def page_after(self, offset: int) -> int:
        """Return the first page boundary at or after an offset."""
        return -(-offset // self.page_bytes) * self.page_bytes

    @property
    def spare_bytes(self) -> int:
        """Bytes at the end of a data file for groups without records."""
        return max(4 * self.page_bytes, self.file_bytes >> 10)
