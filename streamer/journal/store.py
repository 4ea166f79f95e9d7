"""The journal of one daemon, its only writer; and what ``streamer journal`` does from outside.

The data files have everything; the index is made from them whenever it differs, and lags behind
after a power loss. In this order: write the data, sync it, commit the index, which is not synced. A
file name is synced before anything in the file counts. Once ``append`` has returned, its entries
survive a power loss with durability ``fsync``, and a kill with ``os``.

Retention: expired records' rows are deleted first, then files that no row names.
"""

import fcntl
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from itertools import islice
from pathlib import Path
from typing import Literal

from streamer.journal.data_files import (
    DataLog,
    DataReader,
    DataWriter,
    Sizes,
    data_file,
    data_file_numbers,
    placed,
    read_snapshot,
    snapshot_file,
    snapshot_numbers,
    write_snapshot,
)
from streamer.journal.disk import Disk, leads_to, storing, unread
from streamer.journal.reader import JournalView
from streamer.journal.record import (
    Begun,
    Frames,
    JournalDamage,
    JournalError,
    JournalFailed,
    JournalFull,
    JournalInUse,
    Key,
    Received,
    Record,
    Snapshot,
    Usage,
)
from streamer.journal.record_index import (
    NAME,
    ForgottenRow,
    Index,
    ProducerRow,
    Row,
    State,
    flat,
    lost_row,
    pack_lengths,
    record_row,
    row_checksum,
)
from streamer.protocol.wire import crc32c

_HOUR = 3600 * 10**9
_AT_ONCE = 1024  # records per call; appends wait for it
_ALWAYS_CHECKED = 32 << 20  # a start checks each row of an index up to this size
_TOGETHER = 500  # groups in a transaction
_LEAVE = "use an empty directory"
_MACHINE = Path("/etc/machine-id")
_TRIES = 10  # a copy begins again if a new snapshot has replaced the one it needs

Durability = Literal["fsync", "os"]


class Journal(JournalView):
    """One thread appends; another may store a snapshot concurrently.

    accepted: the damage given up by ``accept_loss``. notes: what else was wrong at the start, a
    line each. After JournalFailed, nothing can be stored. What meets a damaged index raises
    JournalDamage and stores nothing.
    """

    def __init__(
        self,
        directory: str | Path,
        identity: bytes,
        durability: Durability = "fsync",
        accept_loss: bool = False,
        keep_bytes: int = 0,
        keep_hours: float = 0,
        *,
        sizes: Sizes | None = None,
        disk: Disk | None = None,
    ) -> None:
        """Open a directory, created if needed, and begin a new epoch in it.

        identity: the meaning of the records, words like ``name=value`` in UTF-8; refused if a
        different one is stored. keep_bytes, keep_hours: for ``expire``, 0 for no limit. Raises
        JournalInUse, JournalFull, JournalDamage for damage in what recovery needs (unless
        ``accept_loss``), and JournalError for a directory or a format that is not ours.
        """
        self.accepted: list[JournalDamage] = []
        self.directory = Path(directory)
        self._disk, self._sizes = disk or Disk(), sizes or Sizes()
        self._synced = durability == "fsync"
        self._keep_bytes, self._keep_hours = keep_bytes, keep_hours
        self._failure: str | None = None
        self._one = threading.Lock()
        self._data = DataWriter(self._disk, self.directory, sizes=self._sizes, synced=self._synced)
        self._lock = own(self._disk, self.directory)
        with ExitStack() as opened:
            opened.callback(self._lock.close)
            opened.callback(self._data.close)
            self._start(identity, opened, accept_loss=accept_loss)
            self._closing = opened.pop_all()

    def _start(self, identity: bytes, opened: ExitStack, *, accept_loss: bool) -> None:
        disk, directory = self._disk, self.directory
        rows: list[Row] = []
        with closing(DataLog(directory, self._sizes)) as log:
            self._index, damaged, self.notes = recover(
                disk, directory, log, sizes=self._sizes, everything=accept_loss
            )
            index, stored = self._index, log.state
            opened.callback(index.close)
            here = home_of(directory)
            fresh = os.urandom(8), here, os.urandom(16), identity
            state = stored or State(1, *fresh, 0, int(self._synced), 1, *[0] * 9)
            check_identity(directory, state.identity, identity)
            goes_on = stored is not None and log.has(state)
            if stored is not None and not goes_on:
                path = data_file(directory, state.file)
                self.notes.append(f"{path}: offset {state.begin}: the last group is damaged")
        if damaged and not accept_loss:
            raise damaged[0].of(len(damaged))
        if damaged:
            self.accepted = damaged
            state, rows = give_up(index, directory, damaged)
        self._producers = {row.name: row for row in index.producers()}
        self._snapshot = index.snapshot()
        if self._synced and not state.synced:
            sync_all(disk, directory)
        if log.cut or state.home != here:
            why = "its end is damaged" if state.home == here else "a copy of a journal"
            state = state._replace(home=here, stream=os.urandom(8))
            self.notes.append(f"{directory}: {why}: it goes on as another stream")
        # what is damaged is not written over
        goes_on = goes_on and not log.notes and not rows
        file = state.file if goes_on else max([state.file, *log.numbers])
        for number in log.numbers:
            if number > file:
                disk.delete(data_file(directory, number))
        self._data.start(file, state.begin, state.end if goes_on else 0)
        self._state = state
        self._commit(state._replace(epoch=state.epoch + 1, synced=int(self._synced)), rows)
        if stored is None:
            with storing(directory, sync=True):
                disk.sync_directory(directory.parent)
        self._snapshot = index.snapshot()
        self._delete_data_files(self._state)
        self._delete_snapshots()

    # ---- what is stored ---------------------------------------------------------------------

    def producers(self) -> list[Received]:
        """Return what was last received under each name, regardless of retention."""
        return [
            Received(row.name.decode(), row.epoch, row.sequence, row.mark, row.time)
            for row in self._producers.values()
        ]

    def content(self, producer: str, epoch: int, sequence: int) -> int | None:
        """The ``content`` of a stored batch's key; None if its record is no longer retained."""
        row = self._index.key(producer.encode(), epoch, sequence)
        return None if row is None else row.content

    def snapshot(self) -> Snapshot | None:
        """Return the last snapshot."""
        row = self._index.snapshot()
        return None if row is None else read_snapshot(self.directory, row)

    def usage(self) -> Usage:
        """Return how much is stored; raises JournalUnread."""
        disk = 0
        try:
            paths = [*self.directory.iterdir()]
        except OSError as error:
            raise unread(self.directory, error) from error
        for path in paths:
            # another thread may have replaced the snapshot
            with suppress(FileNotFoundError):
                disk += path.stat().st_blocks * 512
        return Usage(self._state.bytes, disk, self.oldest, self.head)

    # ---- storing ----------------------------------------------------------------------------

    def append(self, entries: Sequence[Record | Begun]) -> None:
        """Store a group of records and producer epochs, in order and atomically.

        Raises JournalFull if nothing was stored and a retry may succeed, JournalFailed if it is
        unknown whether it was stored (the journal is then unusable), and ValueError if numbers or
        keys are out of order.
        """
        if not entries:
            return
        with self._working():
            state, producers = self._state, self._followers(entries)
            records = [entry for entry in entries if isinstance(entry, Record)]
            group = [tuple(map(flat, record.frames)) for record in records]
            rows: list[Row] = []
            offset = 0
            for record, frames in zip(records, group, strict=True):
                rows.append(record_row(record, frames, offset))
                offset += sum(map(len, frames))
            before = [row for name in producers if (row := self._producers.get(name))]
            digest = state.digest + producers_digest(producers.values()) - producers_digest(before)
            state = state._replace(
                head=state.head + len(rows),
                bytes=state.bytes + offset + sum(len(record.meta) for record in records),
                producers=len(self._producers.keys() | producers.keys()),
                digest=digest & 0xFFFFFFFF,
            )
            self._commit(state, [*rows, *producers.values()], group)
            self._producers.update(producers)

    def _commit(
        self, state: State, rows: Sequence[Row] = (), records: Sequence[Frames] = ()
    ) -> None:
        """Store rows, the frames of those that are of records, and a new state; atomically."""
        index, oldest = self._index, self._state.oldest
        rows = [*rows, state._replace(serial=0, sum=0, file=0, begin=0, end=0)]
        self._check_place()
        group, sums = self._data.write(self._state, rows, records, self._everything)
        try:
            self._check_place()
            further = iter(sums)
            rows = [placed(row, group, further) for row in rows]
            try:
                index.put(rows)
            except JournalFull:
                # files of expired records make room
                expired = self._state._replace(oldest=state.oldest)
                if state.oldest == oldest or not self._delete_data_files(expired):
                    raise
                index.put(rows)
        except JournalError:
            self._data.take_back()
            raise
        self._data.end = group.end
        assert isinstance(rows[-1], State)
        self._state = rows[-1]

    def _delete_data_files(self, state: State) -> bool:
        """Delete files before those that rows name and the last; return whether there were any."""
        rows = self._index.records(state.oldest - 1, state.head)
        # -1 if unknown: nothing is deleted
        first = next((row.file for row in rows if row.file), state.file)
        end, numbers = min(first, self._data.file), data_file_numbers(self.directory)
        gone = [number for number in numbers if number < end]
        for number in gone:
            self._disk.delete(data_file(self.directory, number))
        return bool(gone)

    def _delete_snapshots(self) -> None:
        """Delete all snapshots but the last one."""
        for number in snapshot_numbers(self.directory):
            if self._snapshot is None or number != self._snapshot.file:
                self._disk.delete(snapshot_file(self.directory, number))

    def _check_place(self) -> None:
        """Raise JournalFull if a restart would not find what is stored now."""
        self._lock.check()
        if not self._data.is_there():
            raise JournalFull(
                f"{self._data.path}: was deleted or replaced: put it back, or start again"
            )

    def _everything(self) -> list[Row]:
        """Return what a new data file begins with."""
        snapshot = [] if self._snapshot is None else [self._snapshot]
        return [*self._producers.values(), *snapshot]

    def checkpoint(self) -> None:
        """Copy SQLite's log into the index if it is long: milliseconds; call it when idle."""
        with self._working():
            self._index.checkpoint(self._sizes.checkpoint_rows)

    def forget(self, producers: Iterable[str]) -> list[str]:
        """Forget those producers that have no retained record; return them."""
        with self._working():
            names = {name.encode() for name in producers}
            rows = [row for name in names if (row := self._producers.get(name))]
            rows = [row for row in rows if not self._index.has_records_of(row.name)]
            if not rows:
                return []
            state = self._state._replace(
                producers=len(self._producers) - len(rows),
                digest=self._state.digest - producers_digest(rows) & 0xFFFFFFFF,
            )
            self._commit(state, [ForgottenRow(row.name) for row in rows])
            for row in rows:
                del self._producers[row.name]
            return [row.name.decode() for row in rows]

    def put_snapshot(self, at: int, meta: bytes, frames: Frames) -> None:
        """Store the state after record ``at``, replacing the previous snapshot.

        JournalFull keeps the previous one. Raises ValueError if ``at`` is not stored, or not later.
        """
        before = self._snapshot
        if at > self.head or (before is not None and at < before.at):
            raise ValueError(
                f"a snapshot at {at}: head is {self.head}, the last is {before and before.at}"
            )
        with self._working(alone=False):
            with self._one:  # another thread may go on to the next file
                self._check_place()
            snapshot = Snapshot(at, meta, tuple(map(flat, frames)))
            number = max([0, *snapshot_numbers(self.directory)]) + 1
            row = write_snapshot(self._disk, self.directory, number, snapshot, synced=self._synced)
            with self._one:
                self._commit(self._state, [row])
                self._snapshot = row
            self._delete_snapshots()

    def expire(self, now: int) -> int:
        """Delete the oldest records beyond the limits, a limited number per call; return how many.

        now: nanoseconds since 1970. Records after the last snapshot stay; without one, all do.
        """
        with self._working():
            before = self._state
            oldest, kept = self._expired(now)
            if oldest > before.oldest:
                self._commit(before._replace(oldest=oldest, bytes=kept))
                self._delete_data_files(self._state)
                self._index.checkpoint(self._sizes.checkpoint_rows)
            return oldest - before.oldest

    def _expired(self, now: int) -> tuple[int, int]:
        """Return which record is the oldest within the limits, and the bytes from there on."""
        state, snapshot = self._state, self._snapshot
        oldest, kept = state.oldest, state.bytes
        if not snapshot or not snapshot.file or not (self._keep_bytes or self._keep_hours):
            return oldest, kept
        for row in self._index.records(oldest - 1, min(oldest - 1 + _AT_ONCE, snapshot.at)):
            too_old = self._keep_hours and row.time < now - int(self._keep_hours * _HOUR)
            if not too_old and not (self._keep_bytes and kept > self._keep_bytes):
                break
            oldest, kept = row.at + 1, max(0, kept - row.size - len(row.meta))
        return oldest, kept

    def close(self) -> None:
        """Close the journal and release the directory."""
        with self._closing:
            if self._failure is None:
                self._index.checkpoint(0)

    @contextmanager
    def _working(self, *, alone: bool = True) -> Iterator[None]:
        """Raise if a failure has occurred before; remember one that occurs now."""
        if self._failure is not None:
            raise JournalFailed(self._failure)
        try:
            with self._one if alone else nullcontext():
                yield
        except JournalFailed as error:
            self._failure = str(error)
            raise

    def _followers(self, entries: Sequence[Record | Begun]) -> dict[bytes, ProducerRow]:
        """Return the producers' rows after these entries; ValueError if they are out of order."""
        rows: dict[bytes, ProducerRow] = {}
        at = self.head
        for entry in entries:
            key: Key | Begun | None = entry if isinstance(entry, Begun) else entry.key
            if isinstance(entry, Record):
                at += 1
                if entry.at != at:
                    raise ValueError(f"record {entry.at} where {at} is next")
            if key is None:
                continue
            name = key.producer.encode()
            last = rows.get(name) or self._producers.get(name)
            sequence, mark = (key.sequence, key.mark) if isinstance(key, Key) else (0, None)
            if last is not None and (key.epoch, sequence) <= (last.epoch, last.sequence):
                raise ValueError(f"behind record {at}: {key} after {last[1:3]}")
            if mark is None:
                mark = last.mark if last is not None else b""
            rows[name] = ProducerRow(name, key.epoch, sequence, bytes(mark), entry.time)
        return rows


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
        if not leads_to(self._directory, here):
            problem = "was deleted, renamed or replaced: move it back, or start again"
        elif here.st_mode & 0o300 != 0o300 or not os.access(self._directory, os.W_OK | os.X_OK):
            problem = "cannot be written any more: give the permission back"
        else:
            return
        raise JournalFull(f"{self._directory}: {problem}")

    def close(self) -> None:
        """Release the directory."""
        os.close(self._fd)


def own(disk: Disk, directory: Path) -> Lock:
    """Create the directory if needed, and lock it; raise JournalError if it has other content."""
    try:
        disk.make_directory(directory)
        others = [path for path in directory.iterdir() if not path.name.startswith(NAME)]
        # an interrupted start may have left the index alone
        if others and not (data_file_numbers(directory) or snapshot_numbers(directory)):
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
    place = directory.stat().st_ino, os.statvfs(directory).f_fsid
    return b"%x %x %s" % (*place, machine)


def recover(
    disk: Disk, directory: Path, log: DataLog, *, sizes: Sizes, everything: bool
) -> tuple[Index, list[JournalDamage], list[str]]:
    """Open the index, made anew if anything is wrong with it; also ``damages``, and notes.

    log: has the last state afterwards, None if nothing was ever stored. Without data files, there
    is nothing to make the index from: JournalError or JournalDamage.
    """
    notes: list[str] = []
    while True:
        try:
            with ExitStack() as opened:
                index = open_index(disk, directory, log, sizes=sizes, anew=bool(notes))
                opened.callback(index.close)
                faults = [*damages(index, directory, everything=everything)] if log.state else []
                of_index = [damage for damage in faults if damage.file == str(index.path)]
                if of_index and log.numbers and not notes:
                    raise of_index[0]
                opened.pop_all()
                return index, faults, [*notes, *map(str, log.damages)]
        except JournalError as error:
            # others say nothing about the content
            if notes or not log.numbers or type(error) not in (JournalError, JournalDamage):
                raise
            notes = [f"{error}: the index was made anew"]


def open_index(disk: Disk, directory: Path, log: DataLog, *, sizes: Sizes, anew: bool) -> Index:
    """Open the index and bring it up to date with the data files, or make it ``anew`` from them.

    Raises JournalDamage if the index is of no use, or no group is whole.
    """
    path = directory / NAME
    there = path.exists() and (Path(f"{path}-wal").exists() or not log.numbers)
    with ExitStack() as opened:
        state = None
        if there and not anew:
            index = Index(directory, vfs=disk.vfs, write=True, page_bytes=sizes.page_bytes)
            opened.callback(index.close)
            # a start may have ended before it had stored anything
            state = None if index.empty() else index.state()
        if log.numbers and not anew and (state is None or log.seal not in (None, state.seal)):
            raise JournalDamage("is missing, or not that of the data files", file=str(path))
        if state is None:
            opened.close()
            with storing(path):
                for old in directory.glob(f"{NAME}*"):
                    disk.delete(old)
                os.close(disk.create(path, 0))
            index = Index(directory, vfs=disk.vfs, write=True, page_bytes=sizes.page_bytes)
            opened.callback(index.close)
        index.prepare(create=state is None)
        changes = log.changes(state)
        while groups := list(islice(changes, _TOGETHER)):
            with index.transaction():
                for group, rows in groups:
                    if not group.begin:
                        index.clear("producers")
                        index.clear("snapshots")
                    index.put(rows)
        if log.state is None and (log.notes or snapshot_numbers(directory)):
            raise JournalDamage(f"no records can be read: {_LEAVE}", file=str(directory))
        opened.pop_all()
        return index


def damages(index: Index, directory: Path, *, everything: bool) -> Iterator[JournalDamage]:
    """Yield the damage that would stop recovery, or ``everything``; nothing if intact.

    Of a small index, also that which recovery does not need. Raises JournalDamage if the index is
    of no use.
    """
    state, small = index.state(), index.path.stat().st_size <= _ALWAYS_CHECKED
    if everything or small:
        yield from index.integrity()
    producers, snapshot = index.producers(), index.snapshot()
    if (len(producers), producers_digest(producers)) != (state.producers, state.digest):
        yield JournalDamage("a producer is missing", file=str(index.path))
    after = first = state.oldest - 1
    try:
        if snapshot is not None:
            read_snapshot(directory, snapshot)
            after = after if everything or not snapshot.file else max(after, snapshot.at)
    except JournalDamage as damage:
        yield damage
    with closing(DataReader(directory)) as files:
        for row in index.records(first if small else after, state.head):
            try:
                if row.at > after or row.file < 0:
                    files.record(row)
            except JournalDamage as damage:
                yield damage


def give_up(
    index: Index, directory: Path, damaged: Sequence[JournalDamage]
) -> tuple[State, list[Row]]:
    """Return the state and the rows that give up all that is damaged.

    A damaged record keeps its number. Of records and snapshots, what the index knows is kept. If
    nothing tells how far batches had got, they continue under a new stream: no number is used twice
    within a stream.
    """
    state, snapshot, producers = index.state(), index.snapshot(), index.producers()
    numbers = {damage.record for damage in damaged}
    rows: list[Row] = []
    if snapshot and str(snapshot_file(directory, snapshot.file)) in {d.file for d in damaged}:
        rows.append(snapshot._replace(file=0, lengths=pack_lengths([]), sum=crc32c([])))
    last = snapshot.at if snapshot else 0
    # whether we know, up to the current record, how far batches had got
    known = last > 0 or state.oldest == 1
    kept = 0
    for row in index.records(state.oldest - 1, state.head):
        known = row.producer is not None or (known and (row.file >= 0 or row.at <= last))
        if row.at in numbers:
            row = lost_row(row)
            rows.append(row)
        kept += row.size + len(row.meta)
    state = state._replace(bytes=kept, producers=len(producers), digest=producers_digest(producers))
    return state if known else state._replace(stream=os.urandom(8)), rows


def producers_digest(rows: Iterable[ProducerRow]) -> int:
    """Return a checksum over producers: it changes if one changes or vanishes."""
    return sum(map(row_checksum, rows)) & 0xFFFFFFFF


def check_identity(directory: Path, stored: bytes, asked: bytes) -> None:
    """Raise JournalError that names the difference, if there is one."""
    if stored == asked:
        return
    there, here = (text.decode(errors="backslashreplace").split() for text in (stored, asked))
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
        with storing(path, sync=True), open(disk.open(path), "rb") as file:
            disk.sync(file.fileno())
    with storing(directory, sync=True):
        disk.sync_directory(directory)


class JournalDamages(JournalError):
    """All that is wrong with a journal, a line each."""

    def lines(self) -> list[str]:
        return [str(damage) for damage in self.args]


def check_journal(directory: str) -> str:
    """Read everything; return what there is. Raises JournalDamages."""
    path = Path(directory)
    with _data_of(path) as log:
        for _ in log.changes():
            pass
        faults = log.damages
        try:
            with closing(Index(path)) if (path / NAME).exists() else nullcontext() as index:
                if index is None or index.empty() or (index.state() != log.state and not faults):
                    problem = "is missing, or not that of the data files"
                    problem += ": run streamer journal rebuild"
                    raise JournalDamage(problem, file=str(path / NAME))
                faults += damages(index, path, everything=True)
        except JournalDamage as damage:
            faults.append(damage)
        return _described(path, log.state, faults, "nothing is damaged")


def rebuild_index(directory: str) -> str:
    """Make the index anew; return what there is. Raises JournalDamages for what is missing."""
    path = Path(directory)
    with _data_of(path) as log:
        open_index(Disk(), path, log, sizes=Sizes(), anew=True).close()
        return _described(path, log.state, log.damages, "the index was made anew")


def copy_journal(directory: str, target: str) -> str:
    """Copy what is stored now; return what that is. The index is left out."""
    source, copy = Path(directory), Path(target)
    if copy.exists() and (not copy.is_dir() or any(copy.iterdir())):
        raise JournalError(f"{copy}: is not empty: copy to a new folder")
    damaged: list[JournalDamage] = []
    for _ in range(_TRIES):
        with ExitStack() as stack, _data_of(source, alone=False) as log:
            for _ in log.changes():
                pass
            state, snapshot, damaged = log.state, log.snapshot, log.notes
            if damaged:
                continue
            if state is None:
                raise JournalError(f"{source}: nothing is stored")
            last = data_file(source, state.file)
            paths = [data_file(source, number) for number in log.numbers if number <= state.file]
            if snapshot is not None and snapshot.file:
                paths.append(snapshot_file(source, snapshot.file))
            try:
                files = [stack.enter_context(path.open("rb")) for path in paths]
            except FileNotFoundError:
                continue
            copy.mkdir(mode=0o700, parents=True, exist_ok=True)
            for path, file in zip(paths, files, strict=True):
                fd = os.open(copy / path.name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                size = state.end if path == last else os.fstat(file.fileno()).st_size
                with open(fd, "wb", buffering=0) as made:
                    while piece := file.read(min(1 << 20, size - made.tell())):
                        made.write(piece)
                    os.fsync(fd)
            Disk().sync_directory(copy)
            return _described(copy, state, [], "copied; it is another stream")
    if damaged:
        raise JournalDamages(*damaged)
    raise JournalError(f"{source}: its files change too fast: try again")


@contextmanager
def _data_of(path: Path, *, alone: bool = True) -> Iterator[DataLog]:
    """The data files of a journal that no daemon uses, or that one may use."""
    if not path.is_dir() or (alone and not data_file_numbers(path)):
        raise JournalError(f"{path}: there is no journal")
    with closing(Lock(path)) if alone else nullcontext(), closing(DataLog(path, Sizes())) as log:
        yield log


def _described(path: Path, state: State | None, damaged: list[JournalDamage], what: str) -> str:
    if damaged:
        raise JournalDamages(*damaged)
    if state is None:
        return f"{path}: nothing is stored"
    records = f"records {state.oldest} to {state.head}" if state.head >= state.oldest else "none"
    return f"{path}: {records}, {state.producers} producers: {what}"
