"""Write groups of records to the data files.

Gather the frames of a group in contiguous memory that a disk can take directly.

A write that bypasses the page cache needs whole pages of aligned memory. This copy costs less than
the kernel's into fresh pages of its cache, and each record is checksummed while it is in the core's
cache.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from numba import carray  # type: ignore[attr-defined]

from streamer.journal.data_files import (
    HEADER_BYTES,
    DataGroup,
    Sizes,
    data_file,
    pack_header,
    pack_sums,
)
from streamer.journal.disk import Disk, storing, syncing
from streamer.journal.record import Frame, JournalFailed, JournalFull
from streamer.journal.record_index import ForgottenRow, Row, State, pack_rows
from streamer.protocol.checksum_kernels import continue_crc32c
from streamer.protocol.header import crc32c, crc32c_address
from trie.cpu.intrinsics import array_address, pointer
from trie.cpu.jit import njit
from trie.cpu.threads import GIL_BYTES

# more than most groups need; memory beyond this is released
_KEPT_BYTES = 64 << 20
# frames of smaller records are joined first, which costs less than passing each one's address
_JOINED_BYTES = 1 << 18


class Gatherer:
    """Page-aligned memory, reused for one group after another."""

    def __init__(self) -> None:
        self._memory = np.zeros(0, np.uint8)

    def gather(
        self, records: Sequence[Sequence[Frame]], *, before: int, size: int
    ) -> tuple[memoryview, list[int]]:
        """Return ``size`` bytes with the frames from ``before`` on, and the CRC-32C of each record.

        The rest is 0. The bytes are valid until the next call.
        """
        memory = self._memory
        if size > memory.size:
            # a power of two, so that few groups need a larger one
            memory = np.frombuffer(mmap.mmap(-1, 1 << (size - 1).bit_length()), np.uint8)
            if memory.size <= _KEPT_BYTES:
                self._memory = memory
        parts = [_parts(one) for one in records]
        arrays = [np.frombuffer(frame, np.uint8) for one in parts for frame in one]
        places = np.array([(array_address(array), array.size) for array in arrays], np.int64)
        counts = np.array([*map(len, parts)], np.int64)
        sums = np.zeros(len(records), np.uint32)
        address = np.uint64(crc32c_address())
        run = _gather if size > GIL_BYTES else _gather_few
        run(address, places.reshape(-1, 2), counts, memory[:size], before, sums)
        found = sums.tolist() if address else [crc32c(one) for one in records]
        return memory[:size].data, found


def _parts(frames: Sequence[Frame]) -> list[Frame]:
    """Return the nonempty frames, or all of them joined."""
    there = [frame for frame in frames if len(frame)]
    if len(there) > 1 and sum(map(len, there)) <= _JOINED_BYTES:
        return [b"".join(there)]
    return there


@njit(cache=True, nogil=True)
def _gather(address, places, counts, memory, before, sums):
    memory[:before] = 0
    at = before
    frame = 0
    for record in range(counts.size):
        begin = at
        for _ in range(counts[record]):
            source = carray(pointer(np.uint64(places[frame, 0])), places[frame, 1], np.uint8)
            target = memory[at : at + source.size]
            for i in range(source.size):  # slice assignment would check for overlap
                target[i] = source[i]
            at += source.size
            frame += 1
        if address and at > begin:
            place = np.uint64(memory.ctypes.data + begin)
            sums[record] = continue_crc32c(address, np.uint32(0), place, at - begin)
    memory[at:] = 0


@njit(cache=True)
def _gather_few(address, places, counts, memory, before, sums):
    _gather(address, places, counts, memory, before, sums)


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
        raise JournalFailed(f"{self.path}: cannot be stored: start again")

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
