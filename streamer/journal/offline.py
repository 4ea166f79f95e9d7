"""What ``streamer journal`` does with a journal from outside its daemon."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TypeVar

from streamer.journal.data_files import Sizes, data_file
from streamer.journal.disk import Disk
from streamer.journal.opening import Checked, DataLog, Lock, make_index
from streamer.journal.record import JournalDamage, JournalError
from streamer.journal.record_index import NAME, Index, SnapshotRow, State
from streamer.journal.stored_snapshots import snapshot_file

_TRIES = 10  # a copy begins again if a new snapshot has replaced the one it needs

T = TypeVar("T")


class JournalDamages(JournalError):
    """All that is wrong with a journal, a line each."""

    def __init__(self, damages: list[JournalDamage]) -> None:
        self._damages = damages
        super().__init__(str(damages[0]))

    def lines(self) -> list[str]:
        return [str(damage) for damage in self._damages]


def check_journal(directory: str, sizes: Sizes | None = None) -> str:
    """Read everything; return what there is. Raises JournalDamages."""

    def checked(path: Path, log: DataLog) -> str:
        state = None
        for _, rows in log.changes():
            state = next((row for row in rows if isinstance(row, State)), state)
        found = [*log.notes, *log.incomplete]
        try:
            problem = "is missing, or not that of the data files: run streamer journal rebuild"
            differs = JournalDamage(problem, file=str(path / NAME))
            if not (path / NAME).exists():
                raise differs
            with closing(Index(path)) as index:
                if index.empty() or (index.state() != state and not found):
                    raise differs
                found += Checked(index, path).damages(everything=True)
        except JournalDamage as damage:
            found.append(damage)
        if found:
            raise JournalDamages(found)
        assert state is not None
        return _described(path, state, "nothing is damaged")

    return _alone(directory, checked, sizes)


def rebuild_index(directory: str, sizes: Sizes | None = None) -> str:
    """Make the index anew; return what there is. Raises JournalDamages for what is missing."""

    def rebuilt(path: Path, log: DataLog) -> str:
        index, state = make_index(Disk(), path, log, sizes=sizes or Sizes())
        index.close()
        if found := [*log.notes, *log.incomplete]:
            raise JournalDamages(found)
        if state is None:
            return f"{path}: nothing is stored"
        return _described(path, state, "the index was made anew")

    return _alone(directory, rebuilt, sizes)


def copy_journal(directory: str, target: str, sizes: Sizes | None = None) -> str:
    """Copy what is stored now; return what that is. The index is left out."""
    source, copy = Path(directory), Path(target)
    if copy.exists() and (not copy.is_dir() or any(copy.iterdir())):
        raise JournalError(f"{copy}: is not empty: copy to a new folder")
    _check_folder(source)
    damages: list[JournalDamage] = []
    for _ in range(_TRIES):
        with ExitStack() as stack, closing(DataLog(source, sizes or Sizes())) as log:
            state, snapshot = None, None
            for group, rows in log.changes():
                if not group.begin:
                    snapshot = None
                for row in rows:
                    state = row if isinstance(row, State) else state
                    snapshot = row if isinstance(row, SnapshotRow) else snapshot
            if log.notes:
                damages = log.notes
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
            return _described(copy, state, "copied; it is another stream")
    if damages:
        raise JournalDamages(damages)
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


def _alone(directory: str, work: Callable[[Path, DataLog], T], sizes: Sizes | None) -> T:
    path = Path(directory)
    _check_folder(path)
    with closing(Lock(path)), closing(DataLog(path, sizes or Sizes())) as log:
        if not log.numbers:
            raise JournalError(f"{path}: there is no journal")
        return work(path, log)


def _check_folder(path: Path) -> None:
    if not path.is_dir():
        raise JournalError(f"{path}: there is no journal")


def _described(path: Path, state: State, what: str) -> str:
    records = f"records {state.oldest} to {state.head}" if state.head >= state.oldest else "none"
    return f"{path}: {records}, {state.producers} producers: {what}"
