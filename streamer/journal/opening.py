"""Open a directory's index: exclusive, ours, private, and with the expected identity.

Find what is damaged in a journal, and continue without it.

The data files as one sequence of groups, from which the index is made.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from streamer.journal.data_files import (
    DataGroup,
    DataReader,
    Sizes,
    data_file,
    data_file_numbers,
)
from streamer.journal.disk import Disk, storing, syncing
from streamer.journal.reader import RecordReader
from streamer.journal.record import LOST, JournalDamage, JournalError, JournalFull, JournalInUse
from streamer.journal.record_index import (
    NAME,
    ForgottenRow,
    Index,
    ProducerRow,
    RecordRow,
    Row,
    State,
    lost,
    pack_lengths,
    row_checksum,
)
from streamer.journal.stored_snapshots import read_snapshot, snapshot_file, snapshot_numbers
from streamer.protocol.header import crc32c

_ALWAYS_CHECKED = 32 << 20
"""SQLite checks an index up to this size at each start, a larger one only in ``verify``."""


class Checked:
    """Checks a journal against its checksums."""

    def __init__(self, index: Index, directory: Path) -> None:
        self._index, self._directory = index, directory
        self._reader = RecordReader(index, directory)

    def damages(self, *, everything: bool) -> Iterator[JournalDamage]:
        """Yield the damage that would stop recovery, or ``everything``; nothing if intact.

        Raises JournalDamage if the state itself cannot be read.
        """
        state = self._index.state()
        if everything or self._is_small():
            yield from self._index.integrity()
        yield from self._producers(state)
        after = state.oldest - 1
        try:
            if (row := self._index.snapshot()) is not None:
                read_snapshot(self._directory, row)
                after = after if everything or not row.file else max(after, row.at)
        except JournalDamage as damage:
            yield damage
        for _, record in self._reader.checked(after, state.head):
            if isinstance(record, JournalDamage):
                yield record

    def index_damage(self) -> JournalDamage | None:
        """Return damage of the index itself, as far as a start looks for it.

        In a large one, rows that recovery does not need are left to ``verify``.
        """
        try:
            path, state = str(self._index.path), self._index.state()
            if self._is_small():
                for row in self._index.records(state.oldest - 1, state.head):
                    if isinstance(row, JournalDamage):
                        return row
            return next((one for one in self.damages(everything=False) if one.file == path), None)
        except JournalDamage as damage:
            return damage

    def mended(self) -> tuple[list[JournalDamage], State, list[Row]]:
        """Return what is damaged, and the state and the rows that give it up.

        A damaged record keeps its number. For records and snapshots, what the index knows of them
        is kept; a lost producer is rebuilt from its records. If nothing tells how far batches had
        got, they continue under a new stream: no number is used twice within a stream.
        """
        found = list(self.damages(everything=True))
        index, state = self._index, self._index.state()
        if not found:
            return found, state, []
        producers = self._known_producers(state)
        rows: list[Row] = [*producers]
        snapshot, given_up = 0, index.snapshot()
        if given_up is not None:
            snapshot = given_up.at
            try:
                read_snapshot(self._directory, given_up)
            except JournalDamage:
                rows.append(given_up._replace(file=0, lengths=pack_lengths([]), sum=crc32c([])))
        # whether we know, up to the current record, how far batches had got
        known = snapshot > 0 or state.oldest == 1
        kept = 0
        for row, record in self._reader.checked(state.oldest - 1, state.head):
            if row is not None:
                known = known or row.producer is not None
            elif isinstance(record, JournalDamage) and (record.record or state.head) > snapshot:
                known = False
            if isinstance(record, JournalDamage) and record.record is not None:
                row = _given_up(record.record, row)
                rows.append(row)
            kept += row.size + len(row.meta) if row is not None else 0
        state = state._replace(
            bytes=kept, producers=len(producers), digest=producers_digest(producers)
        )
        return found, state if known else state._replace(stream=os.urandom(8)), rows

    def _is_small(self) -> bool:
        return self._index.file_bytes() <= _ALWAYS_CHECKED

    def _known_producers(self, state: State) -> list[ProducerRow]:
        """Return the intact rows, and the others as rebuilt from retained records."""
        known = {r.name: r for r in self._index.producers() if isinstance(r, ProducerRow)}
        for row in self._index.records(state.oldest - 1, state.head):
            if not isinstance(row, RecordRow) or row.producer is None:
                continue
            assert row.epoch is not None
            assert row.sequence is not None
            place = row.epoch, row.sequence
            before = known.get(row.producer)
            if before is None or place > before[1:3]:
                known[row.producer] = ProducerRow(row.producer, *place, row.mark or b"", row.time)
        return list(known.values())

    def _producers(self, state: State) -> Iterator[JournalDamage]:
        rows = self._index.producers()
        good = [row for row in rows if isinstance(row, ProducerRow)]
        yield from (row for row in rows if isinstance(row, JournalDamage))
        whole = (len(good), producers_digest(good)) == (state.producers, state.digest)
        if len(good) == len(rows) and not whole:
            yield JournalDamage("a producer is missing", file=str(self._index.path))


def producers_digest(rows: Iterable[ProducerRow]) -> int:
    """Return a checksum over producers: it changes if one changes or vanishes."""
    return sum(row_checksum(ProducerRow, row) for row in rows) & 0xFFFFFFFF


def _given_up(at: int, row: RecordRow | None) -> RecordRow:
    """Return the row of a record that is given up, with what is known from its old row."""
    kind, time, meta = (f" {row.kind.decode()}", row.time, row.meta) if row else ("", 0, b"")
    nothing = None, None, None, None, None
    about = row and row.about
    end = 0, meta, *nothing, about
    return RecordRow(at, (LOST + kind).encode(), time, 0, 0, 0, pack_lengths([]), *end)


_TOGETHER = 500  # groups in a transaction

Change = tuple[DataGroup, list[Row | ForgottenRow]]


class DataLog:
    """Reads the groups of a directory. notes: each place where something is damaged.

    incomplete: the last group, if it is not whole, as a power failure may leave it. cut: nothing
    whole follows a damaged header. Raises JournalError for files of another format.
    """

    def __init__(self, directory: Path, sizes: Sizes) -> None:
        self.notes: list[JournalDamage] = []
        self.incomplete: list[JournalDamage] = []
        self.cut = False
        self.numbers = data_file_numbers(directory)
        self._directory, self._sizes = directory, sizes
        self._files = DataReader(directory)
        for number in self.numbers:
            if self._files.is_of_before(number):
                raise JournalError(
                    f"{data_file(directory, number)}: format 2, this version of the program reads "
                    "3: use another directory or another version"
                )
        self.seal = next((group.seal for group in self._headers() if group is not None), None)

    def has(self, state: State) -> bool:
        """Whether the last group of a state is where the state says."""
        group = self._files.group(state.file, state.begin)
        if group is None:
            return False
        there = group.seal, group.serial, group.sum
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

    def changes(self, state: State | None = None) -> Iterator[Change]:
        """Yield the groups after a state, or all, with their rows; in order, the last one whole."""
        last: Change | None = None
        for change in self._changes(state):
            if last is not None:
                yield last
            last = change
        if last is None:
            return
        if self._is_whole(last):
            yield last
            return
        group, rows = last
        at = [row.at for row in rows if isinstance(row, RecordRow)]
        problem = f"records {at[0]} to {at[-1]} are incomplete: never acknowledged, or damaged"
        self.incomplete.append(self._damage(group.file, group.begin, problem))

    def _changes(self, state: State | None) -> Iterator[Change]:
        serial, before = (0, 0) if state is None else (state.serial, state.sum)
        page = self._sizes.page_bytes
        for number in self.numbers:
            if state is not None and number < state.file:
                continue
            begin = 0
            if state is not None and number == state.file:
                begin = self._sizes.page_after(state.end)
            at: int | None = begin
            first = self._first_serial(number)
            while at is not None:
                group = self._files.group(number, at)
                rows = None if group is None else self._files.rows(group)
                if group is None or rows is None or not self._follows(group, serial):
                    found = self._files.search(number, at + page, page)
                    # it may have been written meanwhile
                    was = group is None and self._files.was_group(number, at, self.seal)
                    again = group or self._files.group(number, at)
                    if (found or was) and rows is None and again and self._files.rows(again):
                        continue
                    if was or (group is None and not at and found):
                        self._note(number, at, "the header of a group is damaged: left out")
                        self.cut = True
                    elif group is not None and rows is None and self._follows(group, serial):
                        problem = "a group is incomplete: never acknowledged, or damaged"
                        self.incomplete.append(self._damage(number, at, problem))
                    at = found
                    continue
                if first is not None and group.serial >= first:
                    break  # never committed: the next file has another one in its place
                if (group.serial, group.before) != (serial + 1, before) and (serial or state):
                    self._note(number, at, f"groups {serial + 1} to {group.serial - 1} are missing")
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

    def _first_serial(self, number: int) -> int | None:
        """Return the serial at the beginning of the next file that has one."""
        for other in self.numbers:
            if other > number and (group := self._files.group(other, 0)) is not None:
                return group.serial
        return None

    def _is_whole(self, change: Change) -> bool:
        try:
            for row in change[1]:
                if isinstance(row, RecordRow) and lost(row) is None:
                    self._files.frames(row)
        except JournalDamage:
            return False
        return True

    def _note(self, number: int, offset: int, problem: str) -> None:
        self.notes.append(self._damage(number, offset, problem))

    def _damage(self, number: int, offset: int, problem: str) -> JournalDamage:
        path = str(data_file(self._directory, number))
        return JournalDamage(problem, file=path, offset=offset)

    def replay(self, index: Index, state: State | None = None) -> State | None:
        """Bring an index up to date from its state, or fill an empty one; return the last state."""
        changes = self.changes(state)
        done = False
        while not done:
            with index.transaction():
                for _ in range(_TOGETHER):
                    change = next(changes, None)
                    if change is None:
                        done = True
                        break
                    group, rows = change
                    if not group.begin:
                        index.clear("producers")
                        index.clear("snapshots")
                    index.put(*rows)
                    state = next((row for row in rows if isinstance(row, State)), state)
                if state is not None:
                    index.delete_records(state.oldest - 1)
        return state

    def close(self) -> None:
        """Close all files."""
        self._files.close()


_LEAVE = "use an empty directory"
_MACHINE = Path("/etc/machine-id")


class Lock:
    """Exclusive ownership of the directory itself, until closed or killed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self.close()
            raise JournalInUse(
                f"{directory}: in use by another process: stop that one, or use another directory"
            ) from error

    def check(self) -> None:
        """Raise JournalFull unless the path still leads to the directory, and it can be written."""
        here = os.fstat(self._fd)
        try:
            there = self._directory.stat()
        except OSError:
            there = None
        if there is None or not os.path.samestat(here, there):
            problem = "was deleted, renamed or replaced: move it back, or start again"
        elif here.st_mode & 0o300 != 0o300 or not os.access(self._directory, os.W_OK | os.X_OK):
            problem = "cannot be written any more: give the permission back"
        else:
            return
        raise JournalFull(f"{self._directory}: {problem}")

    def close(self) -> None:
        """Release the directory."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def own(disk: Disk, directory: Path) -> Lock:
    """Create the directory if needed, and lock it; raise JournalError if it has other content."""
    try:
        disk.make_directory(directory)
        names = [path.name for path in directory.iterdir()]
        # an interrupted start may have left the index alone
        if names and not _leftovers(directory) and not all(map(_is_of_index, names)):
            raise JournalError(f"{directory}: holds other files: {_LEAVE}")
        if directory.stat().st_mode & 0o077:
            directory.chmod(0o700)
        return Lock(directory)
    except OSError as error:
        raise JournalError(
            f"{directory}: cannot hold a journal: {error.strerror}: use another directory"
        ) from error


def home_of(directory: Path) -> bytes:
    """Return what tells a directory from its copies: file system, folder and machine."""
    machine = _MACHINE.read_bytes().strip() if _MACHINE.exists() else b""
    found = directory.stat().st_ino, os.statvfs(directory).f_fsid
    return b"%x %x %s" % (*found, machine)


def new_state(directory: Path, identity: bytes, *, synced: bool) -> State:
    """Return the state of an empty journal."""
    stream, seal = os.urandom(8), os.urandom(16)
    here = home_of(directory)
    return State(1, stream, here, seal, identity, 0, int(synced), 1, *[0] * 9)


def recover(
    disk: Disk, directory: Path, log: DataLog, *, sizes: Sizes
) -> tuple[Index, State | None, list[str]]:
    """Open the index, made anew if anything is wrong with it; also the last state, and notes.

    Without data files, there is nothing to make it from: JournalError or JournalDamage.
    """
    try:
        index, state = open_index(disk, directory, log, sizes=sizes)
        problem: JournalError | None = None
        if state is not None and log.numbers:
            problem = Checked(index, directory).index_damage()
        if problem is None:
            return index, state, [str(note) for note in [*log.notes, *log.incomplete]]
        index.close()
    except JournalError as error:
        # others say nothing about the content
        if not log.numbers or type(error) not in (JournalError, JournalDamage):
            raise
        problem = error
    log.notes.clear()
    log.incomplete.clear()
    index, state = make_index(disk, directory, log, sizes=sizes)
    notes = [f"{problem}: the index was made anew", *log.notes, *log.incomplete]
    return index, state, [str(note) for note in notes]


def open_index(
    disk: Disk, directory: Path, log: DataLog, *, sizes: Sizes
) -> tuple[Index, State | None]:
    """Open the index and bring it up to date with the data files.

    Returns the last state, None for a new journal. Raises JournalDamage if the index is of no use.
    """
    path = directory / NAME
    if log.numbers and not (path.exists() and (directory / f"{NAME}-wal").exists()):
        raise JournalDamage("the index or its log is missing", file=str(path))
    if not path.exists():
        _new_index(disk, directory)
    index = Index(directory, vfs=disk.vfs, write=True, page_bytes=sizes.page_bytes)
    try:
        if index.empty():
            if log.numbers:
                raise JournalDamage("the index is empty", file=str(path))
            index.prepare()
            index.create()
            return index, None
        index.prepare()
        state = index.state() if log.numbers or index.has_state() else None
        if state is not None:
            if log.seal not in (None, state.seal):
                raise JournalDamage("it is of other data files", file=str(index.path))
            state = log.replay(index, state)
    except BaseException:
        index.close()
        raise
    return index, state


def make_index(
    disk: Disk, directory: Path, log: DataLog, *, sizes: Sizes
) -> tuple[Index, State | None]:
    """Make the index from the data files, and return their last state.

    None if the first start ended before it had stored anything. JournalDamage if nothing is whole.
    """
    _new_index(disk, directory)
    index = Index(directory, vfs=disk.vfs, write=True, page_bytes=sizes.page_bytes)
    try:
        index.prepare()
        index.create()
        state = log.replay(index)
        if state is None and (log.notes or snapshot_numbers(directory)):
            raise JournalDamage(f"no records can be read: {_LEAVE}", file=str(directory))
    except BaseException:
        index.close()
        raise
    return index, state


def _new_index(disk: Disk, directory: Path) -> None:
    for path in directory.glob(f"{NAME}*"):
        disk.delete(path)
    with storing(directory / NAME):
        os.close(disk.create(directory / NAME, 0))


def check_identity(directory: Path, stored: bytes, asked: bytes) -> None:
    """Raise JournalError that names the difference, if there is one."""
    if stored == asked:
        return
    there, here = _words(stored), _words(asked)
    was = " ".join(word for word in there if word not in here) or " ".join(there)
    now = " ".join(word for word in here if word not in there) or " ".join(here)
    raise JournalError(
        f"{directory}: its records are of `{was}`, this is `{now}`: "
        "use another directory, or the configuration of these records"
    )


def sync_all(disk: Disk, directory: Path) -> None:
    """Sync everything that an owner has written without syncs."""
    paths = [data_file(directory, number) for number in data_file_numbers(directory)]
    paths += [snapshot_file(directory, number) for number in snapshot_numbers(directory)]
    for path in paths:
        with syncing(path):
            fd = disk.open(path)
            try:
                disk.sync(fd)
            finally:
                os.close(fd)
    with syncing(directory):
        disk.sync_directory(directory)


def _leftovers(directory: Path) -> bool:
    return bool(data_file_numbers(directory) or snapshot_numbers(directory))


def _is_of_index(name: str) -> bool:
    return name.startswith(NAME)


def _words(identity: bytes) -> list[str]:
    try:
        return identity.decode().split()
    except UnicodeDecodeError:
        return [identity.hex()]
