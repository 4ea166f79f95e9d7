"""Open the directory of a journal: lock it, find what is damaged, go on without it.

Its index is made from the data files whenever it differs from them. Also what ``streamer journal``
does with a journal from outside its daemon.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from itertools import islice
from pathlib import Path

from streamer.journal.data_files import (
    DataLog,
    DataReader,
    Sizes,
    data_file,
    data_file_numbers,
    read_snapshot,
    snapshot_file,
    snapshot_numbers,
)
from streamer.journal.disk import Disk, storing
from streamer.journal.record import JournalDamage, JournalError, JournalFull, JournalInUse
from streamer.journal.record_index import (
    NAME,
    Index,
    ProducerRow,
    Row,
    State,
    lost_row,
    pack_lengths,
    row_checksum,
)
from streamer.protocol.header import crc32c

_ALWAYS_CHECKED = 32 << 20  # a start checks each row of an index up to this size
_TOGETHER = 500  # groups in a transaction
_LEAVE = "use an empty directory"
_MACHINE = Path("/etc/machine-id")
_TRIES = 10  # a copy begins again if a new snapshot has replaced the one it needs


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
    found = directory.stat().st_ino, os.statvfs(directory).f_fsid
    return b"%x %x %s" % (*found, machine)


def new_state(directory: Path, identity: bytes, *, synced: bool) -> State:
    """Return the state of an empty journal."""
    stream, seal = os.urandom(8), os.urandom(16)
    here = home_of(directory)
    return State(1, stream, here, seal, identity, 0, int(synced), 1, *[0] * 9)


def damages(
    index: Index, directory: Path, *, everything: bool, rows: bool = False
) -> Iterator[JournalDamage]:
    """Yield the damage that would stop recovery, or ``everything``; nothing if intact.

    rows: also of those rows of the index that recovery does not need. Raises JournalDamage if the
    index is of no use.
    """
    state = index.state()
    if everything or rows:
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
        for row in index.records(first if rows else after, state.head):
            try:
                if isinstance(row, JournalDamage):
                    yield row
                elif row.at > after:
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
        record = None if isinstance(row, JournalDamage) else row
        at = row.record if isinstance(row, JournalDamage) else row.at
        assert at is not None
        if record is None:
            known = known and at <= last
        elif record.producer is not None:
            known = True
        if at in numbers:
            record = lost_row(at, record)
            rows.append(record)
        kept += record.size + len(record.meta) if record else 0
    state = state._replace(bytes=kept, producers=len(producers), digest=producers_digest(producers))
    return state if known else state._replace(stream=os.urandom(8)), rows


def producers_digest(rows: Iterable[ProducerRow]) -> int:
    """Return a checksum over producers: it changes if one changes or vanishes."""
    return sum(map(row_checksum, rows)) & 0xFFFFFFFF


def recover(
    disk: Disk, directory: Path, log: DataLog, *, sizes: Sizes, everything: bool
) -> tuple[Index, list[JournalDamage], list[str]]:
    """Open the index, made anew if anything is wrong with it; also ``damages``, and notes.

    log: has the last state, None for a new journal. Without data files, there is nothing to make
    the index from: JournalError or JournalDamage.
    """
    problem: JournalError | None = None
    for anew in (False, True):
        index = None
        try:
            index = open_index(disk, directory, log, sizes=sizes, anew=anew)
            rows = not anew and index.file_bytes() <= _ALWAYS_CHECKED
            new = log.state is None
            found = [] if new else [*damages(index, directory, everything=everything, rows=rows)]
        except JournalError as error:
            if index is not None:
                index.close()
            # others say nothing about the content
            if anew or not log.numbers or type(error) not in (JournalError, JournalDamage):
                raise
            problem = error
            continue
        of_index = [damage for damage in found if damage.file == str(index.path)]
        if anew or not of_index or not log.numbers:
            break
        problem = of_index[0]
        index.close()
    assert index is not None
    notes = [f"{problem}: the index was made anew"] if problem else []
    return index, found, [*notes, *map(str, log.damages)]


def open_index(disk: Disk, directory: Path, log: DataLog, *, sizes: Sizes, anew: bool) -> Index:
    """Open the index and bring it up to date with the data files, or make it ``anew`` from them.

    log: has the last state afterwards, None if nothing was ever stored. Raises JournalDamage if the
    index is of no use, or no group is whole.
    """
    path = directory / NAME
    if log.numbers and not anew and not (path.exists() and Path(f"{path}-wal").exists()):
        raise JournalDamage("the index or its log is missing", file=str(path))
    if anew or not path.exists():
        anew = True
        with storing(path):
            for old in directory.glob(f"{NAME}*"):
                disk.delete(old)
            os.close(disk.create(path, 0))
    index = Index(directory, vfs=disk.vfs, write=True, page_bytes=sizes.page_bytes)
    try:
        state = None
        if not anew and not index.empty():
            state = index.state()
            if log.seal not in (None, state.seal):
                raise JournalDamage("it is of other data files", file=str(path))
        elif not anew:
            if log.numbers:
                raise JournalDamage("the index is empty", file=str(path))
            # a start ended before it had stored anything
            index.close()
            return open_index(disk, directory, log, sizes=sizes, anew=True)
        index.prepare()
        if state is None:
            index.create()
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
    except BaseException:
        index.close()
        raise
    return index


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
        with storing(path, sync=True):
            fd = disk.open(path)
            try:
                disk.sync(fd)
            finally:
                os.close(fd)
    with storing(directory, sync=True):
        disk.sync_directory(directory)


def _words(identity: bytes) -> list[str]:
    try:
        return identity.decode().split()
    except UnicodeDecodeError:
        return [identity.hex()]


class JournalDamages(JournalError):
    """All that is wrong with a journal, a line each."""

    def __init__(self, damages: list[JournalDamage]) -> None:
        self._damages = damages
        super().__init__(str(damages[0]))

    def lines(self) -> list[str]:
        return [str(damage) for damage in self._damages]


def check_journal(directory: str, sizes: Sizes | None = None) -> str:
    """Read everything; return what there is. Raises JournalDamages."""
    path = Path(directory)
    with _alone(path, sizes) as log:
        for _ in log.changes():
            pass
        found = log.damages
        try:
            problem = "is missing, or not that of the data files: run streamer journal rebuild"
            differs = JournalDamage(problem, file=str(path / NAME))
            if not (path / NAME).exists():
                raise differs
            with closing(Index(path)) as index:
                if index.empty() or (index.state() != log.state and not found):
                    raise differs
                found += damages(index, path, everything=True)
        except JournalDamage as damage:
            found.append(damage)
        return _described(path, log.state, found, "nothing is damaged")


def rebuild_index(directory: str, sizes: Sizes | None = None) -> str:
    """Make the index anew; return what there is. Raises JournalDamages for what is missing."""
    path = Path(directory)
    with _alone(path, sizes) as log:
        open_index(Disk(), path, log, sizes=sizes or Sizes(), anew=True).close()
        return _described(path, log.state, log.damages, "the index was made anew")


def copy_journal(directory: str, target: str, sizes: Sizes | None = None) -> str:
    """Copy what is stored now; return what that is. The index is left out."""
    source, copy = Path(directory), Path(target)
    if copy.exists() and (not copy.is_dir() or any(copy.iterdir())):
        raise JournalError(f"{copy}: is not empty: copy to a new folder")
    _check_folder(source)
    damaged: list[JournalDamage] = []
    for _ in range(_TRIES):
        with ExitStack() as stack, closing(DataLog(source, sizes or Sizes())) as log:
            for _ in log.changes():
                pass
            state, snapshot, damaged = log.state, log.snapshot, log.notes
            if damaged:
                continue
            if state is None:
                raise JournalError(f"{source}: nothing is stored")
            paths = [data_file(source, number) for number in log.numbers if number <= state.file]
            if snapshot is not None and snapshot.file:
                paths.append(snapshot_file(source, snapshot.file))
            try:
                files = [stack.enter_context(path.open("rb")) for path in paths]
            except FileNotFoundError:
                continue
            copy.mkdir(mode=0o700, parents=True, exist_ok=True)
            for path, file in zip(paths, files, strict=True):
                last = path == data_file(source, state.file)
                _copy(file.fileno(), copy / path.name, state.end if last else None)
            Disk().sync_directory(copy)
            return _described(copy, state, [], "copied; it is another stream")
    if damaged:
        raise JournalDamages(damaged)
    raise JournalError(f"{source}: its files change too fast: try again")


def _copy(source: int, path: Path, end: int | None) -> None:
    """Copy a file, up to ``end``; space that was never written stays so."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        size = os.fstat(source).st_size if end is None else end
        at = 0
        while at < size:
            done = os.sendfile(file.fileno(), source, at, min(size - at, 1 << 26))
            if not done:
                break
            at += done
        os.fsync(file.fileno())


@contextmanager
def _alone(path: Path, sizes: Sizes | None) -> Iterator[DataLog]:
    """The data files of a journal that no daemon uses."""
    _check_folder(path)
    with closing(Lock(path)), closing(DataLog(path, sizes or Sizes())) as log:
        if not log.numbers:
            raise JournalError(f"{path}: there is no journal")
        yield log


def _check_folder(path: Path) -> None:
    if not path.is_dir():
        raise JournalError(f"{path}: there is no journal")


def _described(path: Path, state: State | None, damaged: list[JournalDamage], what: str) -> str:
    if damaged:
        raise JournalDamages(damaged)
    if state is None:
        return f"{path}: nothing is stored"
    records = f"records {state.oldest} to {state.head}" if state.head >= state.oldest else "none"
    return f"{path}: {records}, {state.producers} producers: {what}"
