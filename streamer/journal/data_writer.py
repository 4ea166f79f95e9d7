"""Write groups of records to the data files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from streamer.journal.data_files import HEADER_BYTES, GroupHeader, data_file, pack_header
from streamer.journal.disk import Disk, storing, syncing
from streamer.journal.gathering import Gatherer
from streamer.journal.journal_errors import JournalFull
from streamer.journal.record import Frame
from streamer.journal.sizes import Sizes

# small groups are written with trailing zeros, to be overwritten by the next groups
_SMALL_BYTES, _FILL_BYTES = 1 << 18, 1 << 20


class Written(NamedTuple):
    """A written group: its file, offsets of its first frame and its end, a CRC-32C per record."""

    file: int
    offset: int
    end: int
    sums: list[int]


class DataWriter:
    """The end of the data: where the next group goes.

    If the file no longer exists, a new one is started. ``synced``: whether content and names are on
    disk when ``write`` returns.
    """

    def __init__(self, disk: Disk, directory: Path, *, sizes: Sizes, synced: bool) -> None:
        self.file = self.end = 0
        self._disk = disk
        self._directory = directory
        self._sizes = sizes
        self._synced = synced
        self._gatherer = Gatherer()
        self._fd: int | None = None
        # of the file: its size, and up to where it has been written completely
        self._room = self._filled = 0

    def start(self, file: int, end: int) -> None:
        """Continue at this place."""
        self.file, self.end = file, end
        with suppress(FileNotFoundError):
            if file:
                self._use(self._disk.open(data_file(self._directory, file)))

    def write(self, seal: bytes, first: int, records: Sequence[Sequence[Frame]]) -> Written:
        """Store the frames of a group.

        Raises JournalFull or JournalFailed. Only ``taken`` claims the place; until then, the next
        group is written there, too.
        """
        size = sum(len(frame) for record in records for frame in record)
        begin = self._sizes.page_after(self.end)
        stop = self._sizes.page_after(begin + HEADER_BYTES + size)
        if self._fd is None or stop > self._room:
            begin, stop = 0, stop - begin
            self._next_file(stop)
        assert self._fd is not None
        if stop > self._filled and stop - begin <= _SMALL_BYTES:
            # syncing a page that was never written costs a commit of the file system's own journal
            stop = max(stop, min(begin + _FILL_BYTES, self._room))
        content, sums = self._gatherer.gather(records, before=HEADER_BYTES, size=stop - begin)
        content[:HEADER_BYTES] = pack_header(seal, GroupHeader(first, len(records), size))
        path = data_file(self._directory, self.file)
        with storing(path):
            self._disk.write(self._fd, begin, [content])
        if self._synced:
            with syncing(path):
                self._disk.sync(self._fd)
        self._filled = max(self._filled, stop)
        offset = begin + HEADER_BYTES
        return Written(self.file, offset, offset + size, sums)

    def taken(self, end: int) -> None:
        """Note that what was written up to here has been committed."""
        self.end = end

    def close(self) -> None:
        """Close the file."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _next_file(self, size: int) -> None:
        """Create a file and sync its name; a smaller one if there is little room.

        After JournalFull there is none.
        """
        least, size = size, max(size, self._sizes.file_bytes)
        path = data_file(self._directory, self.file + 1)
        while True:
            try:
                with storing(path):
                    fd = self._disk.create(path, size)
                break
            except JournalFull:
                if size == least:
                    raise
                size = max(least, size // 2)
        if self._synced:
            try:
                with syncing(path):
                    self._disk.sync_directory(self._directory)
            except JournalFull:
                os.close(fd)
                self._disk.delete(path)
                raise
        if self._fd is not None:
            with suppress(OSError):  # space reserved after the end is no longer needed
                self._disk.truncate(self._fd, self.end)
            os.close(self._fd)
        self.file, self.end = self.file + 1, 0
        self._use(fd)

    def _use(self, fd: int) -> None:
        self._disk.bypass_cache(fd)
        self._fd, self._room, self._filled = fd, os.fstat(fd).st_size, 0
