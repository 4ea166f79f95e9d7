"""Watch a folder: visit its files as they become complete or grow, until the run is over.

``Watcher`` reads each record once, with a ledger.
"""

import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import BinaryIO, Generic, TypeVar

from streamer.client.producer import Piece
from streamer.errors import DataError
from streamer.sequences.repeated_names import RepeatedNames
from streamer.watching.file_visit import BatchSizes, FileVisit, digest_of_ends
from streamer.watching.folder import (
    Folder,
    Hints,
    Sighting,
    has_end,
    is_compressed,
    mate_of,
    may_grow,
)
from streamer.watching.ledger import NOT_DONE, Ledger

# minimum between two scans; also a multiple of the last one's duration
_SCAN_SECONDS = 3.0
_SCAN_SHARE = 300
# interval between scans that also examine compressed files that are done
_WHOLE_SECONDS = 60.0
# minimum between two visits to a growing file
_AGAIN_SECONDS = 1.0
# report a file whose end is missing after this many times ``settle``
_PATIENCE = 10
_LONGEST = 1.0  # plus this many seconds
_POLL_SECONDS = 0.5
_FORGET_VISITS = 1000


T = TypeVar("T")

# stages of a file: changing; settled; unchanged for so long that it will stay so
CHANGING, SETTLED, LASTING = range(3)


@dataclass(slots=True)
class Pending:
    """A file that is not done: its last state, and since when.

    visited: its state and stage when last read, at ``at``. grows: whether it is read as it grows,
    if known. problem: what its end lacks. refused: it could not be read.
    """

    seen: Sighting
    since: float
    visited: tuple[Sighting, int] | None = None
    at: float = 0.0
    grows: bool | None = None
    problem: str = ""
    said: bool = False
    refused: bool = False


class FolderWatch(Generic[T]):
    """The results of the files of a folder, until its run is over or ``stopped``.

    settle: how many seconds a file must be unchanged to count as complete. follows: uncompressed
    FASTQ is visited as it grows, too. note, fault: called with a line for people, ``fault`` if
    reads may be missing. ``given_up``: files and folders not read completely.
    """

    def __init__(
        self,
        folder: Folder,
        hints: Hints,
        settle: float,
        *,
        follows: bool,
        stopped: Callable[[], object],
        note: Callable[[str], None],
        fault: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.given_up: set[str] = set()
        self._folder = folder
        self._hints = hints
        self._settle = settle
        self._follows = follows
        self._stopped = stopped
        self._note = note
        self._fault = fault
        self._clock = clock
        self._pending: dict[str, Pending] = {}
        self._unreadable: set[str] = set()
        self._is_there = True
        self._waits = False
        self._scanned = self._next_scan = self._next_whole = 0.0
        self._over: float | None = None

    def _was_done(self, path: str) -> bool:
        """Return whether a file was done in some state."""
        raise NotImplementedError

    def _is_same(self, path: str, seen: Sighting) -> bool:
        """Return whether a file is as it was when it was done."""
        raise NotImplementedError

    def _size_before(self, path: str) -> int:
        """Return how large a file was when it was done."""
        raise NotImplementedError

    def _read(self, path: str, file: Pending, opened: BinaryIO, stage: int) -> Iterator[T]:
        """Visit a file that can be read now; ``_done`` if nothing is left in it.

        DataError or OSError give it up until it changes.
        """
        raise NotImplementedError

    def _rest(self) -> None:
        """Do what is due after a round."""

    def __iter__(self) -> Iterator[T]:
        """Yield what visits yield."""
        changed: set[str] | None = None
        while not self._stopped():
            self._look(changed)
            for path in self._ready():
                yield from self._visit(path)
                if self._stopped():
                    return
            self._rest()
            now = self._clock()
            self._speak(now)
            if self._is_over(now):
                break
            changed = self._hints.wait(self._seconds(now))
        for path, file in self._pending.items():
            if file.problem:
                self._give_up(path, f"{file.problem}: given up")

    # ---- what is there -------------------------------------------------------------------------

    def _look(self, changed: set[str] | None) -> None:
        now = self._clock()
        if changed is None or now >= self._next_scan or self._folder.has_folder(changed):
            self._scan(now)
            return
        for path, seen in self._folder.look(changed).items():
            self._see(path, seen, now)

    def _scan(self, now: float) -> None:
        began = time.thread_time()
        if (there := self._folder.there()) != self._is_there:
            self._is_there = there
            is_or_not = "is back" if there else "is gone: waits for it"
            self._note(f"{self._folder.path}: {is_or_not}")
        if whole := now >= self._next_whole:
            self._next_whole = now + _WHOLE_SECONDS
        sightings = self._folder.scan(self._is_nothing if whole else self._is_passed)
        for path, seen in sightings.items():
            self._see(path, seen, now)
        unreadable = self._folder.unreadable
        self.given_up -= self._unreadable - unreadable.keys()
        self._unreadable = set(unreadable)
        for path, line in unreadable.items():
            self._give_up(path, line)
        if there:
            for path in self._pending.keys() - sightings.keys():
                if path.startswith(tuple(unreadable)):
                    continue
                file = self._pending.pop(path)
                if file.seen.size:
                    self._note(f"{self._folder.absolute(path)}: is gone before its end was read")
        if whole:
            for file in self._pending.values():
                # a change of permissions does not show in the file's state
                file.visited = None if file.refused else file.visited
        self._scanned = now
        taken = time.thread_time() - began
        self._next_scan = now + max(_SCAN_SECONDS, _SCAN_SHARE * taken)

    @staticmethod
    def _is_nothing(path: str) -> bool:
        return False

    def _is_passed(self, path: str) -> bool:
        return is_compressed(path) and path not in self._pending and self._was_done(path)

    def _see(self, path: str, seen: Sighting, now: float) -> None:
        file = self._pending.get(path)
        if self._is_same(path, seen):
            self._pending.pop(path, None)
            return
        before = file.seen.size if file else self._size_before(path)
        if seen.size < before:
            self._note(
                f"{self._folder.absolute(path)}: has shrunk from {before:,} to {seen.size:,} bytes"
            )
        if file is None:
            grows = None if self._follows and not is_compressed(path) else False
            self._pending[path] = Pending(seen, now, grows=grows)
        elif file.seen != seen:
            file.seen, file.since = seen, now
            file.problem, file.said = "", False

    # ---- files read ----------------------------------------------------------------------------

    def _ready(self) -> list[str]:
        """Return the files to visit now, the earliest changed first."""
        now = self._clock()
        ready = [path for path, file in self._pending.items() if self._is_ready(file, now)]
        return sorted(ready, key=lambda path: (self._pending[path].seen.changed, path))

    def _stage(self, file: Pending, now: float) -> int:
        age = now - file.since
        if age < self._settle:
            return CHANGING
        lasting = age >= _PATIENCE * self._settle + _LONGEST or self._over is not None
        return LASTING if lasting else SETTLED

    def _is_ready(self, file: Pending, now: float) -> bool:
        seen, stage = file.visited or (None, CHANGING)
        if (now_at := self._stage(file, now)) != CHANGING:
            return seen != file.seen or stage < now_at
        return file.grows is not False and seen != file.seen and now - file.at >= _AGAIN_SECONDS

    def _visit(self, path: str) -> Iterator[T]:
        now = self._clock()
        if sightings := self._folder.look([path]):
            self._see(path, sightings[path], now)
        file = self._pending.get(path)
        if file is None or not self._is_ready(file, now):
            return
        stage = self._stage(file, now)
        file.visited, file.at, file.refused = (file.seen, LASTING if stage else stage), now, False
        place = self._folder.absolute(path)
        try:
            with open(place, "rb") as opened:
                if not file.seen.size:
                    return
                file.grows = self._follows and may_grow(opened)
                if not file.grows and not stage:
                    return
                if not (file.grows or has_end(opened, patient=stage == LASTING)):
                    file.problem = f"{place}: the compressed stream is truncated"
                    file.visited = file.seen, stage
                    return
                yield from self._read(path, file, opened, stage)
        except DataError as error:
            self._give_up(path, str(error))
            return
        except FileNotFoundError:
            return
        except OSError as error:
            file.refused = True
            self._give_up(
                path, f"{place}: cannot be read: {(error.strerror or str(error)).lower()}"
            )
            return

    def _done(self, path: str) -> None:
        self._pending.pop(path, None)
        self.given_up.discard(path)

    def _give_up(self, path: str, line: str) -> None:
        if path not in self.given_up:
            self.given_up.add(path)
            self._fault(line)

    # ---- between visits ------------------------------------------------------------------------

    def _speak(self, now: float) -> None:
        """Report files whose end has been missing for long."""
        for file in self._pending.values():
            lasts = self._stage(file, now) == LASTING and self._over is None
            if file.problem and lasts and not file.said:
                file.said = True
                self._note(f"{file.problem}: waits for the rest")

    def _is_over(self, now: float) -> bool:
        """Return whether the run is over and all of its files have settled."""
        growing = self._folder.growing()
        if growing and not self._waits:
            self._waits = True
            where = self._folder.absolute(min(growing))
            self._note(f"a run is over: waits for the end of all others, such as that of {where}")
        if growing is None or growing:
            self._over = None
            return False
        if self._over is None:
            # files written before may become visible later
            self._over = now
            self._next_scan = now + self._settle
            self._next_whole = 0.0
        visited = all(file.visited == (file.seen, LASTING) for file in self._pending.values())
        return self._scanned >= self._over + self._settle and visited

    def _seconds(self, now: float) -> float:
        """Return how long to wait until something has to be done."""
        settling = [
            file.since + self._settle - now
            for file in self._pending.values()
            if not self._stage(file, now)
        ]
        return max(0.02, min(_POLL_SECONDS, self._next_scan - now, *settling))


class Watcher(FolderWatch[Piece]):
    """The unsent reads of a folder, each time of one file.

    acknowledged: returns how many of the reads are durable. ``reads``, ``bases`` and ``files``
    count what was read.
    """

    def __init__(
        self,
        folder: Folder,
        ledger: Ledger,
        hints: Hints,
        settle: float,
        *,
        sizes: BatchSizes,
        stopped: Callable[[], object],
        acknowledged: Callable[[], int],
        note: Callable[[str], None],
        fault: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(
            folder, hints, settle, follows=True, stopped=stopped, note=note, fault=fault,
            clock=clock,
        )  # fmt: skip
        self.reads = self.bases = self.files = 0
        self._ledger = ledger
        self._sizes = sizes
        self._acknowledged = acknowledged
        # by mate, because the files of both have the same names
        self._names: defaultdict[str, RepeatedNames] = defaultdict(RepeatedNames)
        # visits that may not be durable: reads before each, and its number
        self._begun: deque[tuple[int, int]] = deque()
        self._forget_at = _FORGET_VISITS

    def _was_done(self, path: str) -> bool:
        last = self._ledger.files.get(path)
        return last is not None and last.size != NOT_DONE

    def _size_before(self, path: str) -> int:
        last = self._ledger.files.get(path)
        return max(last.size, last.offset) if last else 0

    def _is_same(self, path: str, seen: Sighting) -> bool:
        last = self._ledger.files.get(path)
        if last is None or (last.size, last.changed) != (seen.size, seen.changed):
            return False
        if last.touched == seen.touched:
            return True
        # renamed, with other permissions, restored, or replaced by a file with the same time
        try:
            with open(self._folder.absolute(last.path), "rb") as file:
                same = digest_of_ends(file, last.size) == last.tail
        except OSError:
            return False
        if same:
            self._ledger.end(last._replace(touched=seen.touched))
        return same

    def _read(self, path: str, file: Pending, opened: BinaryIO, stage: int) -> Iterator[Piece]:
        place = self._folder.absolute(path)
        reading = FileVisit(
            self._ledger, path, opened, absolute=self._folder.absolute, grows=bool(file.grows),
            complete=stage > 0, lasting=stage == LASTING, note=self._note, sizes=self._sizes,
        )  # fmt: skip
        try:
            yield from self._counted(reading, place)
        finally:
            if reading.undecided:
                file.visited = file.seen, stage
        if reading.problem:
            file.problem = str(reading.problem)
        if reading.done:
            self._done(path)

    def _counted(self, reading: FileVisit, place: str) -> Iterator[Piece]:
        before, names = self.reads, self._names[mate_of(place)]
        with closing(iter(reading)) as pieces:
            for sent in pieces:
                if self.reads == before:
                    self.files += 1
                    self._begun.append((before, self._ledger.last))
                if line := names.line(sent.reads.names):
                    self._note(f"{place}: {line}")
                self.reads += len(sent.reads)
                self.bases += sent.reads.symbols
                yield sent
                if self._stopped():
                    return

    def _rest(self) -> None:
        self._ledger.store()
        self._forget()

    def _forget(self) -> None:
        """Delete obsolete rows of the ledger."""
        if self._ledger.last < self._forget_at:
            return
        self._forget_at = self._ledger.last + _FORGET_VISITS + len(self._ledger.files)
        while len(self._begun) > 1 and self._begun[1][0] < self._acknowledged():
            self._begun.popleft()
        if self._begun and self._begun[0][0] < self._acknowledged():
            self._ledger.forget(self._begun[0][1])
