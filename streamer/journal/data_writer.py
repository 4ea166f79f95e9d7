"""Write groups of records to the data files."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from streamer.journal.data_files import HEADER_BYTES, DataGroup, data_file, pack_header, pack_sums
from streamer.journal.disk import Disk, storing, syncing
from streamer.journal.gathering import Gatherer
from streamer.journal.index_tables import ForgottenRow, Row, State, pack_rows
from streamer.journal.journal_errors import JournalFailed, JournalFull
from streamer.journal.record import Frame
from streamer.journal.sizes import Sizes
from streamer.protocol.checksums import crc32c

# small groups are written with trailing zeros, to be overwritten by the next groups
_SMALL_BYTES, _FILL_BYTES = 1 << 18, 1 << 20


class DataWriter:
    """The end of the data: where the next group goes.

    If the file no longer exists, a new one is started. ``synced``: whether content and names are on
    disk when ``write`` returns.
    """

    def __init__(self, disk: Disk, directory: Path, *, sizes: Sizes, synced: bool) -> None:
        self.file = self.end = 0
        self._begin = 0
        self._disk = disk
        self._directory = directory
        self._sizes = sizes
        self._synced = synced
        self._gatherer = Gatherer()
        self._fd: int | None = None
        # of the file: its size, and up to where it has been written completely
        self._room = self._filled = 0

    def start(self, file: int, begin: int, end: int) -> None:
        """Continue behind a group; without one, with a new file.

        A sync of this group may have failed in an earlier life, so it is written again.
        """
        self.file, self.end = file, end
        if not end:
            return
        with storing(self.path):
            fd = self._disk.open(self.path)
            data = os.pread(fd, end - begin, begin)
        self._use(fd)
        if self._synced and len(data) == end - begin:
            size = self._sizes.page_after(len(data))
            self._begin = begin
            self._write(self._gatherer.gather([[data]], before=0, size=size)[0])

    @property
    def path(self) -> Path:
        """The path of the current file."""
        return data_file(self._directory, self.file)

    def is_there(self) -> bool:
        """Return whether the path of the file is still that of the file being written."""
        if self._fd is None:
            return True
        try:
            return os.path.samestat(os.fstat(self._fd), self.path.stat())
        except OSError:
            return False

    def write(
        self,
        state: State,
        rows: Sequence[Row | ForgottenRow],
        records: Sequence[Sequence[Frame]],
        everything: Callable[[], list[Row | ForgottenRow]],
    ) -> tuple[DataGroup, list[int]]:
        """Store a group behind that of ``state``; return it and the CRC-32C of each record.

        rows: what it changes, with the frames of ``records``. everything: returns all that a new
        file begins with. Raises JournalFull or JournalFailed. Only ``taken`` claims the place;
        until then, the next group is written there, too.
        """
        size = sum(len(frame) for record in records for frame in record)
        packed = pack_rows(rows)
        begin = self._sizes.page_after(self.end)
        # room is left for groups without records, so that a full disk does not stop retention
        spare = self._sizes.spare_bytes if records else 0
        fits = self._stop(begin, size, packed, records) + spare <= self._room
        if self._fd is None or not begin or not fits:
            packed = pack_rows([*everything(), *rows])
            least = self._stop(0, size, packed, records) + self._sizes.spare_bytes
            if self._fd is None or begin or least > self._room:
                self._next_file(least)
            begin = 0
        assert self._fd is not None
        self._begin, stop = begin, self._stop(begin, size, packed, records)
        if stop > self._filled and stop - begin <= _SMALL_BYTES:
            # syncing a page that was never written costs a commit of the file system's own journal
            stop = max(stop, min(begin + _FILL_BYTES, self._room))
        content, sums = self._gatherer.gather(records, before=HEADER_BYTES, size=stop - begin)
        packed += pack_sums(sums)
        serial, before = state.serial + 1, state.sum
        fields = serial, before, size, len(packed) - 4 * len(sums), len(sums), crc32c([packed])
        group = DataGroup(self.file, begin, state.seal, *fields, 0)
        header, crc = pack_header(group)
        content[: len(header)] = header
        content[HEADER_BYTES + size : HEADER_BYTES + size + len(packed)] = packed
        self._write(content)
        self._filled = max(self._filled, stop)
        return group._replace(sum=crc), sums

    def take_back(self) -> None:
        """Erase the header of the last group: nothing is stored."""
        with suppress(JournalFull):  # what is overwritten has its room
            self._write(self._gatherer.gather([], before=0, size=self._sizes.page_bytes)[0])
            return
        message = f"{self.path}: cannot be stored: start again"
        raise JournalFailed(message)

    def taken(self, end: int) -> None:
        """Note that what was written up to here has been committed."""
        self.end = end

    def _stop(
        self, begin: int, size: int, packed: bytes, records: Sequence[Sequence[Frame]]
    ) -> int:
        return self._sizes.page_after(begin + HEADER_BYTES + size + len(packed) + 4 * len(records))

    def _write(self, content: memoryview) -> None:
        assert self._fd is not None
        with storing(self.path):
            self._disk.write(self._fd, self._begin, [content])
        if self._synced:
            with syncing(self.path):
                self._disk.sync(self._fd)

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
