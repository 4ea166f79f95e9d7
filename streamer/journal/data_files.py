"""The files of a journal that hold frames: data files and snapshots.

A data file is a sequence of groups of frames, each with the rows that the index has of them. A
group begins at a page boundary::

    64 header: 8 magic | 16 seal | 8 serial | 4 sum of the group before | 8 bytes of frames |
               4 bytes of rows | 4 records | 4 CRC-32C of rows and sums | 4 CRC-32C of the header
    frames of its records, one after another
    rows (msgpack), in which places are relative to the group
    4 CRC-32C of the frames of each record

A group changes the index as one transaction, so the index can be made anew from the data files.
Serials count up, and the CRC-32C of each header is repeated in the next one, which shows gaps and
changes of order. No group is written before the one in front of it is committed. A group at the
beginning of a file has the rows of all producers and of the snapshot, so older files can be
deleted. The seal is secret, so no frame can pass for a header.

A snapshot is a file of its own, complete before the index names it.
"""

import mmap
import os
import struct
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from streamer.journal import record_index
from streamer.journal.disk import Disk, leads_to, storing, unread
from streamer.journal.record import (
    Frames,
    JournalDamage,
    JournalError,
    JournalFailed,
    JournalFull,
    Key,
    Record,
    Snapshot,
)
from streamer.protocol.wire import crc32c
from trie.cpu.threads import GIL_BYTES

HEADER_BYTES = 64

PIECE_BYTES = 1 << 20
"""Bytes that ``SnapshotFile`` reads at a time."""

_HEADER = struct.Struct("<8s16sQIQIII")
_SUM = struct.Struct("<I")
_MAGIC, _MAGIC_BEFORE = b"kmer-lg3", b"kmer-log"
_SEARCHED_BYTES = 1 << 20
_UNREAD = "snapshot cannot be read"
# more than most groups need; memory beyond this is released
_KEPT_BYTES = 64 << 20
# small groups are written with trailing zeros, to be overwritten by the next groups
_SMALL_BYTES, _FILL_BYTES = 1 << 18, 1 << 20


class Sizes(NamedTuple):
    """Sizes of a journal; tests make them small.

    file_bytes: reserved per data file. page_bytes: of SQLite, and the alignment of groups.
    checkpoint_rows: SQLite's log is copied into the index whenever so many rows were stored.
    """

    file_bytes: int = 256 << 20
    page_bytes: int = 4096
    checkpoint_rows: int = 2500

    def page_after(self, offset: int) -> int:
        """Return the first page boundary at or after an offset."""
        return -(-offset // self.page_bytes) * self.page_bytes

    @property
    def spare_bytes(self) -> int:
        """Bytes at the end of a data file for groups without records."""
        return max(4 * self.page_bytes, self.file_bytes >> 10)


class DataGroup(NamedTuple):
    """A group: its place, and what its header says. sum: of the header, and so of all but frames.

    before: the sum of the group in front of it. size, rows: bytes of frames and of rows.
    """

    file: int
    begin: int
    seal: bytes
    serial: int
    before: int
    size: int
    rows: int
    records: int
    rows_sum: int
    sum: int

    @property
    def frames(self) -> int:
        """The offset of the first frame."""
        return self.begin + HEADER_BYTES

    @property
    def end(self) -> int:
        """The offset behind the group."""
        return self.frames + self.size + self.rows + _SUM.size * self.records


def _numbered(prefix: str, directory: Path, number: int) -> Path:
    return directory / f"{prefix}{number:08d}"


def _numbers(prefix: str, directory: Path) -> list[int]:
    try:
        names = os.listdir(directory)
    except OSError as error:
        raise unread(directory, error) from error
    numbers = [name.removeprefix(prefix) for name in names if name.startswith(prefix)]
    return sorted(int(number) for number in numbers if number.isdigit())


data_file, snapshot_file = partial(_numbered, "records-"), partial(_numbered, "snapshot-")
"""The path of a file in a directory, numbered from 1."""

data_file_numbers, snapshot_numbers = partial(_numbers, "records-"), partial(_numbers, "snapshot-")
"""The numbers of the files in a directory, ascending; JournalUnread."""


def unpack_header(file: int, begin: int, data: bytes) -> DataGroup | None:
    """Decode the header at a place; None if the data is not one."""
    if len(data) < HEADER_BYTES:
        return None
    magic, *values = _HEADER.unpack_from(data)
    (crc,) = _SUM.unpack_from(data, _HEADER.size)
    if magic != _MAGIC or crc32c([data[: _HEADER.size]]) != crc:
        return None
    return DataGroup._make((file, begin, *values, crc))


class DataReader:
    """Reads and verifies frames and groups. Raises JournalDamage, or JournalUnread."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._number = self._fd = 0  # of the file that is open

    def record(self, row: record_index.RecordRow, *, frames: bool = True) -> Record:
        """Return the record of a row, with its frames unless it was given up."""
        if row.file < 0:
            problem = "is missing from the index, or damaged there"
            raise JournalDamage(
                problem, file=str(self._directory / record_index.NAME), record=row.at
            )
        lost, kind = record_index.is_lost(row), row.kind.decode()
        if lost:
            kind = kind.partition(" ")[2]
        key = None if row.producer is None else Key(row.producer.decode(), *row[10:14])
        read: tuple[memoryview, ...] = ()
        if frames and not lost:
            data = self.read(row.file, row.offset, row.size, row.at) if row.size else b""
            if len(data) != row.size or crc32c([data]) != row.sum:
                path = str(data_file(self._directory, row.file))
                raise JournalDamage("wrong checksum", file=path, offset=row.offset, record=row.at)
            read = split(data, row.lengths)
        return Record(row.at, kind, row.meta, read, key, row.time, row.about, lost)

    def group(self, file: int, offset: int) -> DataGroup | None:
        """Return the group at a place; None if there is no whole header."""
        return unpack_header(file, offset, self.peek(file, offset, HEADER_BYTES))

    def rows(self, group: DataGroup) -> list[record_index.Row] | None:
        """Return the rows of a group, with their places; None if they have changed."""
        offset = group.frames + group.size
        data = self.read(group.file, offset, group.end - offset)
        if len(data) != group.end - offset or crc32c([data]) != group.rows_sum:
            return None
        sums = iter(struct.unpack(f"<{group.records}I", data[group.rows :]))
        return [placed(row, group, sums) for row in record_index.unpack_rows(data[: group.rows])]

    def search(self, file: int, offset: int, page: int) -> int | None:
        """Return the first place at or after ``offset`` where a header may begin."""
        try:
            while True:
                with self._reading(file, offset):
                    # space that was never written is skipped; an error after the last data
                    offset = os.lseek(self._file(file), offset, os.SEEK_DATA) // page * page
                data = self.read(file, offset, _SEARCHED_BYTES)
                place = data.find(_MAGIC)
                while place >= 0:
                    if not place % page:
                        return offset + place
                    place = data.find(_MAGIC, place + 1)
                offset += _SEARCHED_BYTES
        except JournalDamage:
            return None

    def peek(self, file: int, offset: int, size: int) -> bytes:
        """Read up to ``size`` bytes of a file, none if they are damaged."""
        try:
            return self.read(file, offset, size)
        except JournalDamage:
            return b""

    def read(self, file: int, offset: int, size: int, record: int | None = None) -> bytes:
        """Read up to ``size`` bytes of a file. record: whose they are, for an error."""
        parts = []
        with self._reading(file, offset, record):
            fd = self._file(file)
            while size:
                part = os.pread(fd, min(size, 1 << 30), offset)
                if not part:
                    break
                parts.append(part)
                offset, size = offset + len(part), size - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    @contextmanager
    def _reading(self, file: int, offset: int, record: int | None = None) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            path = data_file(self._directory, file)
            raise unread(path, error, offset=offset, record=record) from error

    def _file(self, file: int) -> int:
        if file != self._number:
            self.close()
            self._fd = os.open(data_file(self._directory, file), os.O_RDONLY)
            self._number = file
        return self._fd

    def close(self) -> None:
        """Close the file."""
        if self._number:
            os.close(self._fd)
            self._number = 0


def placed(row: record_index.Row, group: DataGroup, sums: Iterator[int]) -> record_index.Row:
    """Return a row of a group with its place in the data files."""
    if isinstance(row, record_index.State):
        return row._replace(
            serial=group.serial, sum=group.sum, file=group.file, begin=group.begin, end=group.end
        )
    if isinstance(row, record_index.RecordRow) and not record_index.is_lost(row):
        return row._replace(file=group.file, offset=group.frames + row.offset, sum=next(sums))
    return row


def split(data: bytes, lengths: bytes) -> tuple[memoryview, ...]:
    """Split frames that were stored one after another."""
    frames, begin = [], 0
    for length in record_index.unpack_lengths(lengths):
        frames.append(memoryview(data)[begin : begin + length])
        begin += length
    return tuple(frames)


class DataLog:
    """The data files as one sequence of groups.

    numbers: of the files. After ``changes``: state, snapshot: the last rows. notes: each place
    where something is damaged. incomplete: the last group, if it is not whole, as a power failure
    may leave it. cut: nothing whole follows a damaged header. Raises JournalError for files of
    another format.
    """

    def __init__(self, directory: Path, sizes: Sizes) -> None:
        self.state: record_index.State | None = None
        self.snapshot: record_index.SnapshotRow | None = None
        self.notes: list[JournalDamage] = []
        self.incomplete: list[JournalDamage] = []
        self.cut = False
        self.numbers = data_file_numbers(directory)
        self._directory, self._sizes = directory, sizes
        self._files = DataReader(directory)
        for number in self.numbers:
            if self._files.peek(number, 0, len(_MAGIC)) == _MAGIC_BEFORE:
                raise JournalError(
                    f"{data_file(directory, number)}: format 2, this version of the program reads "
                    "3: use another directory or another version"
                )
        self.seal = next((group.seal for group in self._headers() if group is not None), None)

    @property
    def damages(self) -> list[JournalDamage]:
        """All that was wrong."""
        return [*self.notes, *self.incomplete]

    def has(self, state: record_index.State) -> bool:
        """Whether the last group of a state is where the state says."""
        group = self._files.group(state.file, state.begin)
        there = group and (group.seal, group.serial, group.sum)
        return there == (state.seal, state.serial, state.sum)

    def _headers(self) -> Iterator[DataGroup | None]:
        """Yield whole headers; first those at the beginning of a file, where no frame can be."""
        page = self._sizes.page_bytes
        yield from (self._files.group(number, 0) for number in self.numbers)
        for number in self.numbers:
            at = self._files.search(number, page, page)
            while at is not None:
                yield self._files.group(number, at)
                at = self._files.search(number, at + page, page)

    def changes(
        self, state: record_index.State | None = None
    ) -> Iterator[tuple[DataGroup, list[record_index.Row]]]:
        """Yield the groups after a state, or all, with their rows; in order, the last one whole."""
        self.state, self.snapshot, self.cut = state, None, False
        self.notes, self.incomplete = [], []
        changes = self._changes(state)
        change = next(changes, None)
        while change is not None:
            (group, rows), following = change, next(changes, None)
            records = [row for row in rows if isinstance(row, record_index.RecordRow)]
            try:
                for row in [] if following else records:
                    self._files.record(row)
            except JournalDamage:
                problem = f"records {records[0].at} to {records[-1].at} are incomplete: "
                problem += "never acknowledged, or damaged"
                self.incomplete.append(self._damage(group.file, group.begin, problem))
                return
            if not group.begin:
                self.snapshot = None
            for change_row in rows:
                if isinstance(change_row, record_index.State):
                    self.state = change_row
                elif isinstance(change_row, record_index.SnapshotRow):
                    self.snapshot = change_row
            yield change
            change = following

    def _changes(
        self, state: record_index.State | None
    ) -> Iterator[tuple[DataGroup, list[record_index.Row]]]:
        serial, before = (0, 0) if state is None else (state.serial, state.sum)
        page, begin = self._sizes.page_bytes, state and self._sizes.page_after(state.end)
        for number in self.numbers:
            if state is not None and number < state.file:
                continue
            at = begin if state is not None and number == state.file else 0
            later = (self._files.group(other, 0) for other in self.numbers if other > number)
            first = next((group.serial for group in later if group is not None), None)
            while at is not None:
                group = self._files.group(number, at)
                rows = None if group is None else self._files.rows(group)
                if group is None or rows is None or not self._follows(group, serial):
                    following = self._files.search(number, at + page, page)
                    # it may have been written meanwhile
                    data = self._files.peek(number, at, HEADER_BYTES)
                    was = data.startswith(_MAGIC) or data[8:24] == self.seal
                    was = was and group is None
                    again = group or self._files.group(number, at)
                    if (following or was) and rows is None and again and self._files.rows(again):
                        continue
                    if was or (group is None and not at and following):
                        problem = "the header of a group is damaged: left out"
                        self.notes.append(self._damage(number, at, problem))
                        self.cut = True
                    elif group is not None and rows is None and self._follows(group, serial):
                        problem = "a group is incomplete: never acknowledged, or damaged"
                        self.incomplete.append(self._damage(number, at, problem))
                    at = following
                    continue
                if first is not None and group.serial >= first:
                    break  # never committed: the next file has another one in its place
                if (group.serial, group.before) != (serial + 1, before) and (serial or state):
                    problem = f"groups {serial + 1} to {group.serial - 1} are missing"
                    self.notes.append(self._damage(number, at, problem))
                # a group is written once the one in front of it is whole
                self.notes += self.incomplete
                self.incomplete.clear()
                self.cut = False
                yield group, rows
                serial, before = group.serial, group.sum
                at = self._sizes.page_after(group.end)

    def _follows(self, group: DataGroup, serial: int) -> bool:
        """Whether a group is of this journal, and not one that was written over."""
        return group.seal == self.seal and group.serial > serial

    def _damage(self, number: int, offset: int, problem: str) -> JournalDamage:
        return JournalDamage(problem, file=str(data_file(self._directory, number)), offset=offset)

    def close(self) -> None:
        """Close all files."""
        self._files.close()


class DataWriter:
    """The end of the data: where the next group goes.

    synced: whether content and names are on disk when ``write`` returns.
    """

    def __init__(self, disk: Disk, directory: Path, *, sizes: Sizes, synced: bool) -> None:
        self.file = self.end = self._begin = 0
        self._disk, self._directory = disk, directory
        self._sizes, self._synced = sizes, synced
        self._memory = np.zeros(0, np.uint8)
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
            self._write(self._gather([[data]], before=0, size=size)[0])

    @property
    def path(self) -> Path:
        """The path of the current file."""
        return data_file(self._directory, self.file)

    def is_there(self) -> bool:
        """Return whether the path of the file is still that of the file being written."""
        return self._fd is None or leads_to(self.path, os.fstat(self._fd))

    def write(
        self,
        state: record_index.State,
        rows: Sequence[record_index.Row],
        records: Sequence[Frames],
        everything: Callable[[], list[record_index.Row]],
    ) -> tuple[DataGroup, list[int]]:
        """Store a group behind that of ``state``; return it and the CRC-32C of each record.

        rows: what it changes, with the frames of ``records``. everything: returns all that a new
        file begins with. Raises JournalFull or JournalFailed. The next group is written
        there, too, unless ``end`` is set behind it.
        """
        size = sum(len(frame) for record in records for frame in record)
        packed = record_index.pack_rows(rows)
        begin = self._sizes.page_after(self.end)
        # room is left for groups without records, so that a full disk does not stop retention
        spare = self._sizes.spare_bytes if records else 0
        fits = self._stop(begin, size, packed, records) + spare <= self._room
        if self._fd is None or not begin or not fits:
            packed = record_index.pack_rows([*everything(), *rows])
            least = self._stop(0, size, packed, records) + self._sizes.spare_bytes
            if self._fd is None or begin or least > self._room:
                self._next_file(least)
            begin = 0
        assert self._fd is not None
        self._begin, stop = begin, self._stop(begin, size, packed, records)
        if stop > self._filled and stop - begin <= _SMALL_BYTES:
            # syncing a page that was never written costs a commit of the file system's own journal
            stop = max(stop, min(begin + _FILL_BYTES, self._room))
        content, sums = self._gather(records, before=HEADER_BYTES, size=stop - begin)
        packed += struct.pack(f"<{len(sums)}I", *sums)
        serial, before = state.serial + 1, state.sum
        fields = serial, before, size, len(packed) - 4 * len(sums), len(sums), crc32c([packed])
        group = DataGroup(self.file, begin, state.seal, *fields, 0)
        header = _HEADER.pack(_MAGIC, *group[2:-1])
        crc = crc32c([header])
        content[: _HEADER.size + _SUM.size] = header + _SUM.pack(crc)
        content[HEADER_BYTES + size : HEADER_BYTES + size + len(packed)] = packed
        self._write(content)
        self._filled = max(self._filled, stop)
        return group._replace(sum=crc), sums

    def take_back(self) -> None:
        """Erase the header of the last group: nothing is stored."""
        with suppress(JournalFull):  # what is overwritten has its room
            self._write(self._gather([], before=0, size=self._sizes.page_bytes)[0])
            return
        raise JournalFailed(f"{self.path}: cannot be stored: start again")

    def _stop(self, begin: int, size: int, packed: bytes, records: Sequence[Frames]) -> int:
        return self._sizes.page_after(begin + HEADER_BYTES + size + len(packed) + 4 * len(records))

    def _gather(
        self, records: Sequence[Frames], *, before: int, size: int
    ) -> tuple[memoryview, list[int]]:
        """Return ``size`` bytes with the frames from ``before`` on, and the CRC-32C of each record.

        The rest is 0. The bytes are valid until the next call. They are whole pages of aligned
        memory, as a write needs that bypasses the page cache; this copy costs less than the
        kernel's.
        """
        memory = self._memory
        if size > memory.size:
            # a power of two, so that few groups need a larger one
            memory = np.frombuffer(mmap.mmap(-1, 1 << (size - 1).bit_length()), np.uint8)
            if memory.size <= _KEPT_BYTES:
                self._memory = memory
        content, at, sums = memory[:size].data, before, []
        memory[:before] = 0
        for frames in records:
            begin = at
            for frame in frames:
                end = at + len(frame)
                if len(frame) > GIL_BYTES:  # NumPy releases the GIL
                    memory[at:end] = np.frombuffer(frame, np.uint8)
                else:
                    content[at:end] = frame
                at = end
            sums.append(crc32c([content[begin:at]]))
        memory[at:size] = 0
        return content, sums

    def _write(self, content: memoryview) -> None:
        assert self._fd is not None
        with storing(self.path):
            self._disk.write(self._fd, self._begin, content)
        if self._synced:
            with storing(self.path, sync=True):
                self._disk.sync(self._fd)

    def close(self) -> None:
        """Close the file."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _next_file(self, size: int) -> None:
        """Create a file and sync its name, or raise; a smaller one if there is little room."""
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
                with storing(path, sync=True):
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


def write_snapshot(
    disk: Disk, directory: Path, number: int, snapshot: Snapshot, *, synced: bool
) -> record_index.SnapshotRow:
    """Store the file of a snapshot and return the row that names it; JournalFull leaves no file."""
    path = snapshot_file(directory, number)
    with storing(path):
        fd = disk.create(path, sum(map(len, snapshot.frames)))
    try:
        with storing(path):
            offset = 0
            for frame in snapshot.frames:
                disk.write(fd, offset, frame)
                offset += len(frame)
        if synced:
            with storing(path, sync=True):
                disk.sync(fd)
                disk.sync_directory(directory)
    except JournalFull:
        disk.delete(path)
        raise
    finally:
        os.close(fd)
    lengths, content = record_index.pack_lengths(snapshot.frames), crc32c(snapshot.frames)
    return record_index.SnapshotRow(1, snapshot.at, number, lengths, content, snapshot.meta)


def read_snapshot(directory: Path, row: record_index.SnapshotRow) -> Snapshot:
    """Read the snapshot that a row names; raise JournalDamage if it has changed."""
    path = snapshot_file(directory, row.file)
    if not row.file:
        return Snapshot(row.at, row.meta, ())
    try:
        data = path.read_bytes()
    except OSError as error:
        raise unread(path, error, _UNREAD) from error
    frames = split(data, row.lengths)
    if sum(map(len, frames)) != len(data) or crc32c([data]) != row.sum:
        raise _wrong(path)
    return Snapshot(row.at, row.meta, frames)


class SnapshotFile:
    """The snapshot of a row, read piece by piece; it stays readable after being replaced.

    Raises JournalDamage if anything cannot be read or has changed.
    """

    def __init__(self, directory: Path, row: record_index.SnapshotRow) -> None:
        self.row, self._path = row, snapshot_file(directory, row.file)
        try:
            self._fd = os.open(self._path, os.O_RDONLY)
            size = os.fstat(self._fd).st_size
        except OSError as error:
            raise unread(self._path, error, _UNREAD) from error
        # a reader that still uses the file keeps it open
        weakref.finalize(self, os.close, self._fd)
        self._places: list[tuple[int, int, int]] = []
        begin = 0
        for frame, length in enumerate(record_index.unpack_lengths(row.lengths)):
            end = begin + length
            for offset in range(begin, end, PIECE_BYTES):
                self._places.append((frame, offset, min(PIECE_BYTES, end - offset)))
            begin = end
        if begin != size:
            raise _wrong(self._path)
        self._unchecked = iter(self._places)
        self._sums: dict[int, int] = {}
        self._sum = 0

    def size(self, frame: int) -> int:
        """Return the size of a frame in bytes."""
        return record_index.unpack_lengths(self.row.lengths)[frame]

    def check(self, most: int) -> bool:
        """Verify about ``most`` more bytes against the checksum; return whether all are done."""
        for _, offset, size in self._unchecked:
            piece = self._read(offset, size)
            self._sums[offset] = crc32c([piece])
            self._sum = crc32c([piece], self._sum)
            most -= size
            if most <= 0:
                return False
        if self._sum != self.row.sum:
            raise _wrong(self._path)
        return True

    def pieces(self, frame: int) -> Iterator[bytes]:
        """Yield a frame of a verified snapshot in pieces of ``PIECE_BYTES``."""
        for number, offset, size in self._places:
            if number == frame:
                piece = self._read(offset, size)
                if crc32c([piece]) != self._sums[offset]:
                    raise _wrong(self._path, offset)
                yield piece

    def _read(self, offset: int, size: int) -> bytes:
        try:
            return os.pread(self._fd, size, offset)
        except OSError as error:
            raise unread(self._path, error, _UNREAD) from error


def _wrong(path: Path, offset: int = 0) -> JournalDamage:
    return JournalDamage("snapshot: wrong checksum", file=str(path), offset=offset)
