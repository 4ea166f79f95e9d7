"""Simulated power cuts over recorded writes: does the journal keep what it had acknowledged?

A chain of lives is recorded. The power is cut at random operations of each: a random part of the
unsynced data survives (``disk_model``), the journal is opened again, and everything in it is
compared with what it had acknowledged. The next life continues from one of these disks. A chain
only depends on its number and the seed.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import apsw

from streamer.journal.data_files import Sizes
from streamer.journal.disk import Disk
from streamer.journal.record import Begun, JournalError, Key, Received, Record, Snapshot
from streamer.journal.record_index import NAME
from streamer.journal.store import Durability, Journal
from tests.streamer.journal.kit import verify

LIVES, CUTS = 8, 50  # lives of a chain, cuts of a life


class Fault(NamedTuple):
    """The effect of a cut: ``lost``, ``twice`` or ``wrong``, and how to reproduce it."""

    kind: str
    text: str
    chain: int
    cut: int


class Cutter:
    """Runs chains of lives in its own directory; close it afterwards."""

    def __init__(self, seed: int, left_out: str | None = None) -> None:
        self._seed, self._left_out = seed, left_out
        memory = Path("/dev/shm")
        self._root = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else None))
        self._live, self._after = self._root / "live" / "j", self._root / "after" / "j"
        self._vfs = f"recording-{id(self)}"
        self._files = RecordingFiles(Log(self._live), self._vfs)
        # a disk after a cut is written to another folder, which stands for the same one
        self._home = patch("streamer.journal.store.home_of", lambda _: b"home")
        self._home.start()

    def chain(self, number: int) -> Iterator[Fault | None]:
        """For each cut of a chain the fault, or None. It ends at the first fault."""
        chance = random.Random(f"{self._seed}:{number}")
        content: dict[str, bytes] | None = None
        known, cuts = NOTHING, 0
        for _ in range(LIVES):
            model = DiskModel(content)
            life, operations = self._record(model, content, known, chance)
            places = range(life.checked_from, len(operations) + 1)
            done = 0
            for place in sorted(chance.choices(places, k=CUTS)):
                for operation in operations[done:place]:
                    model.do(operation)
                done = place
                content = model.after_cut(chance)
                cuts += 1
                outcome = self._check(content, life.events, place, chance)
                if isinstance(outcome, str):
                    yield Fault(*outcome.split(": ", 1), number, cuts)  # type: ignore[call-arg]
                    return
                known = outcome
                yield None

    def close(self) -> None:
        """Delete everything."""
        self._home.stop()
        self._files.unregister()
        shutil.rmtree(self._root)

    def _record(
        self,
        model: DiskModel,
        content: dict[str, bytes] | None,
        known: Known,
        chance: random.Random,
    ) -> tuple[Life, list[tuple[object, ...]]]:
        put_files(self._live, content)
        log = self._files.log = Log(self._live, self._left_out)
        log.files = model.first_files()
        life = Life(log, self._vfs, known, chance)
        life.run()
        return life, log.operations

    def _check(
        self,
        content: dict[str, bytes] | None,
        events: list[Event],
        place: int,
        chance: random.Random,
    ) -> Known | str:
        """What the journal holds now, or what is wrong with it."""
        acknowledged = max((e for e in events if e.end <= place), key=events.index).after
        begun = [event.after for event in events if event.begin < place < event.end]
        put_files(self._after, content)
        try:
            journal = Journal(self._after, IDENTITY, "os", sizes=SIZES)
        except JournalError as error:
            return f"lost: {error}"
        try:
            if wrong := difference(journal, acknowledged, [acknowledged, *begun]):
                return wrong
            held = next(known for known in (*begun, acknowledged) if is_held(journal, known))
            held = held._replace(
                stream=acknowledged.stream,
                epoch=journal.epoch - 1,
                oldest=journal.oldest,
                snapshot=journal.snapshot(),
            )
            if chance.random() < 0.1:
                journal.append([new_record(held, chance)])
                if damages := verify(journal):
                    return f"wrong: {damages[0]}"
            return held
        except JournalError as error:
            return f"lost: {error}"
        finally:
            kill(journal)


def is_held(journal: Journal, known: Known) -> bool:
    """Whether the journal holds exactly these records and producers."""
    producers = {row.producer: row for row in journal.producers()}
    return len(known.records) == journal.head and producers == known.producers


def difference(journal: Journal, acknowledged: Known, possible: list[Known]) -> str:
    """What is wrong with a journal, as ``KIND: TEXT``; "" if nothing.

    possible: what was acknowledged, and what it may hold after the interrupted call.
    """
    if acknowledged.stream not in ("", journal.stream):
        return f"wrong: stream {journal.stream} after {acknowledged.stream}"
    if not acknowledged.epoch < journal.epoch <= acknowledged.epoch + 2:
        return f"twice: epoch {journal.epoch} after {acknowledged.epoch}"
    if journal.head < len(acknowledged.records):
        return f"lost: {journal.head} records of {len(acknowledged.records)}"
    held = [known for known in possible if len(known.records) == journal.head]
    if not held:
        return f"wrong: {journal.head} records after {len(acknowledged.records)}"
    known = held[0]
    if journal.oldest not in {one.oldest for one in possible}:
        return f"wrong: oldest {journal.oldest}"
    found = list(journal.records(journal.oldest - 1))
    keys = Counter(record.key[:3] for record in found if record.key)
    if twice := [key for key, times in keys.items() if times > 1]:
        return f"twice: {twice[0]}"
    if tuple(found) != known.records[journal.oldest - 1 :]:
        return f"wrong: records from {journal.oldest} to {journal.head}"
    if not any(is_held(journal, one) for one in held):
        return f"wrong: producers {journal.producers()}"
    for record in found:
        if record.key and journal.content(*record.key[:3]) != record.key.content:
            return f"wrong: content of record {record.at}"
    if journal.snapshot() not in [one.snapshot for one in possible]:
        return "lost: snapshot"
    return ""


def put_files(directory: Path, content: dict[str, bytes] | None) -> None:
    """Make a directory hold exactly these files; None: no directory."""
    directory.parent.mkdir(exist_ok=True)
    if content is None:
        shutil.rmtree(directory, ignore_errors=True)
        return
    directory.mkdir(mode=0o700, exist_ok=True)
    for path in directory.iterdir():
        path.unlink()
    for name, data in content.items():
        (directory / name).write_bytes(data)


def cut(
    cuts: int, seed: int, left_out: str | None = None, first: int = 0
) -> tuple[int, Counter[str], Fault | None]:
    """Cut this often; returns the faults by kind, and the first of them."""
    cutter = Cutter(seed, left_out)
    done, faults, shown = 0, Counter[str](), None
    try:
        for number in itertools.count(first):
            for fault in cutter.chain(number):
                done += 1
                if fault is not None:
                    faults[fault.kind] += 1
                    shown = shown or fault
                if done == cuts:
                    return faults, shown
    finally:
        cutter.close()
    raise AssertionError


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns 1 if anything was lost, twice or wrong."""
    parser = argparse.ArgumentParser(prog="scripts/faults/power", description=__doc__)
    parser.add_argument("cuts", nargs="?", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--chain", type=int, default=0, help="the first chain, to reproduce a fault"
    )
    parser.add_argument("--leave-out", choices=SYNCS, help="a sync to leave out")
    given = parser.parse_args(arguments)
    begun = time.monotonic()
    faults, shown = cut(given.cuts, given.seed, given.leave_out, given.chain)
    seconds = time.monotonic() - begun
    counts = ", ".join(f"{kind} {faults[kind]}" for kind in ("lost", "twice", "wrong"))
    print(f"power: {given.cuts} cuts, seed {given.seed}: {counts} ({seconds:.0f} s)")
    if shown is not None:
        again = f"scripts/faults/power {shown.cut} --seed {given.seed} --chain {shown.chain}"
        if given.leave_out:
            again += f" --leave-out '{given.leave_out}'"
        print(f"first fault: {shown.kind}: {shown.text}; again: {again}")
    return 1 if faults else 0


IDENTITY = b"k=31 mode=grow"

SIZES = Sizes(file_bytes=1 << 14, page_bytes=512, checkpoint_rows=8)
"""Limits so small that a life reaches the end of files and of SQLite's log."""

KEEP_BYTES = 20_000


class Known(NamedTuple):
    """What a journal holds: ``records`` from ``oldest`` on. stream: "" before the first start.

    producers: by name, what was last stored for it.
    """

    stream: str
    epoch: int
    oldest: int
    records: tuple[Record, ...]
    snapshot: Snapshot | None
    producers: Mapping[str, Received]

    def plus(self, entries: Sequence[Record | Begun]) -> Known:
        """The content after these further entries."""
        producers = dict(self.producers)
        for entry in entries:
            if isinstance(entry, Begun):
                name, epoch, time = entry
                mark = producers[name].mark if name in producers else b""
                producers[name] = Received(name, epoch, 0, mark, time)
            elif entry.key is not None:
                name, epoch, sequence, _, mark = entry.key
                producers[name] = Received(name, epoch, sequence, mark, entry.time)
        records = *self.records, *(entry for entry in entries if isinstance(entry, Record))
        return self._replace(records=records, producers=producers)


NOTHING = Known("", 0, 1, (), None, {})


class Event(NamedTuple):
    """A call: the disk operations before its begin and its return, and what is known afterwards."""

    begin: int
    end: int
    after: Known


class Life:
    """Runs a life; ``events`` are in order, each acknowledged when it returned.

    checked_from: the first operation from which a cut must lose nothing.
    """

    def __init__(self, log: Log, vfs: str, known: Known, chance: random.Random) -> None:
        self.events = [Event(0, 0, known)]
        self.checked_from = 0
        self._log, self._vfs, self._chance = log, vfs, chance
        self._durability: Durability = "fsync"
        self._directory: Path = log.directory
        self._known = known

    def run(self) -> None:
        """Live until the recording is long enough."""
        if self._chance.random() < 0.15:
            self._switch()
        journal = self._open()
        for _ in range(self._chance.randrange(4, 16)):
            match self._chance.randrange(10):
                case 0:
                    self._snapshot(journal)
                case 1:
                    self._expire(journal)
                case 2:
                    journal.close() if self._chance.random() < 0.5 else kill(journal)
                    journal = self._open()
                case 3:
                    self._forget(journal)
                case _:
                    self._append(journal)
        kill(journal)

    @contextmanager
    def _event(self) -> Iterator[None]:
        begin = len(self._log.operations)
        yield
        self.events.append(Event(begin, len(self._log.operations), self._known))

    def _switch(self) -> None:
        """Switch from an owner without syncs to one with syncs: from then on everything is safe."""
        self._durability = "os"
        journal = self._open()
        for _ in range(self._chance.randrange(1, 6)):
            self._append(journal)
        if self._chance.random() < 0.5:
            self._snapshot(journal)
        kill(journal)
        self._durability = "fsync"
        self._log.switching = True
        kill(self._open())
        self._log.switching = False
        self.events = self.events[-1:]
        self.checked_from = len(self._log.operations)

    def _open(self) -> Journal:
        disk = RecordingDisk(self._log, self._vfs)
        with self._event():
            journal = Journal(
                self._directory,
                IDENTITY,
                self._durability,
                keep_bytes=KEEP_BYTES,
                sizes=SIZES,
                disk=disk,
            )
            known = self._known
            assert journal.head == len(known.records)
            self._known = known._replace(stream=journal.stream, epoch=journal.epoch)
        return journal

    def _append(self, journal: Journal) -> None:
        known, chance = self._known, self._chance
        group: list[Record | Begun] = []
        for _ in range(chance.choice((1, 1, 2, 4))):
            if chance.random() < 0.2:
                name = chance.choice(("a", "b", f"once {chance.random()}"))
                epoch = known.producers[name].epoch + 1 if name in known.producers else 1
                group.append(Begun(name, epoch, chance.randrange(100)))
            else:
                group.append(new_record(known, chance))
            known = known.plus(group[-1:])
        with self._event():
            journal.append(group)
            self._known = known
        journal.checkpoint()

    def _forget(self, journal: Journal) -> None:
        known, chance = self._known, self._chance
        asked = [name for name in known.producers if chance.random() < 0.5]
        kept = {record.key.producer for record in known.records[known.oldest - 1 :] if record.key}
        gone = {*asked} - kept
        with self._event():
            assert {*journal.forget(asked)} == gone
            left = {name: row for name, row in known.producers.items() if name not in gone}
            self._known = known._replace(producers=left)

    def _snapshot(self, journal: Journal) -> None:
        last = self._known.snapshot
        at = self._chance.randrange(last.at if last else 0, journal.head + 1)
        frames = tuple(self._chance.randbytes(n) for n in (self._chance.randrange(3000), 0, 9))
        snapshot = Snapshot(at, self._chance.randbytes(20), frames)
        with self._event():
            journal.put_snapshot(*snapshot)
            self._known = self._known._replace(snapshot=snapshot)

    def _expire(self, journal: Journal) -> None:
        with self._event():
            journal.expire(0)
            self._known = self._known._replace(oldest=journal.oldest)


def kill(journal: Journal) -> None:
    """End like a killed process: nothing more is written."""
    journal._failure = "killed"
    journal.close()


def new_record(known: Known, chance: random.Random) -> Record:
    """The next record, with its number as the sequence; some are larger than a data file."""
    at = len(known.records) + 1
    size = chance.choice((0, 10, 300, 1500, 1500, 4000))
    if chance.random() < 0.02:
        size = SIZES.file_bytes + 100
    key = None
    if chance.random() < 0.9:
        name = chance.choice("abc")
        epoch = known.producers[name].epoch if name in known.producers else 1
        key = Key(name, epoch, at, chance.randrange(1 << 32), b"%d" % at)
    frames = (chance.randbytes(size // 2), b"", chance.randbytes(size - size // 2))
    return Record(at, "batch", chance.randbytes(chance.choice((0, 30, 600))), frames, key, at)


SYNCS = {
    "data": "of a data file after each group",
    "snapshot": "of a snapshot's file before the commit",
    "name of data": "of the directory after making a data file",
    "name of snapshot": "of the directory after making a snapshot's file",
    "name of directory": "of the directory's own name after making it",
    "switch": "of what an owner without syncs has left",
}
"""Every sync of the journal. Leaving one out must lose something.

The index is made from the data files: none of its own syncs is among them.
"""


class Log:
    """Operations in order, and the current files. ``left_out``: a sync of ``SYNCS``."""

    def __init__(self, directory: Path, left_out: str | None = None) -> None:
        self.directory = directory
        self.operations: list[tuple[Any, ...]] = []
        self.files: dict[str, int] = {}
        self.switching = False
        self._left_out = left_out
        self._number = 0

    def add(self, *operation: Any) -> None:
        """Record an operation."""
        self.operations.append(operation)

    def create(self, name: str) -> int:
        """Record a new file; returns its number."""
        self._number += 1
        self.files[name] = self._number
        self.add("create", name, self._number)
        return self._number

    def delete(self, name: str) -> None:
        """Record that a name was deleted."""
        if self.files.pop(name, None) is not None:
            self.add("delete", name)

    def sync(self, what: str, *operation: Any) -> None:
        """Record a sync, unless it is the one to leave out."""
        if self.switching and what not in ("index", "checkpoint", "rollback journal"):
            what = "switch"
        if what != self._left_out:
            self.add(*operation)


class RecordingDisk(Disk):
    """A disk whose operations are recorded."""

    def __init__(self, log: Log, vfs: str) -> None:
        self.vfs = vfs
        self._log = log
        self._open: dict[int, str] = {}
        self._last = ""

    def make_directory(self, directory: Path) -> None:
        if not directory.exists():
            self._log.add("make")
        super().make_directory(directory)

    def create(self, path: Path, size: int) -> int:
        fd = super().create(path, size)
        self._open[fd] = path.name
        self._last = "index" if path.name == NAME else _kind(path.name)
        file = self._log.create(path.name)
        if size:
            self._log.add("size", file, size)
        return fd

    def open(self, path: Path) -> int:
        fd = super().open(path)
        self._open[fd] = path.name
        return fd

    def write(self, fd: int, offset: int, data: Any) -> None:
        super().write(fd, offset, data)
        if len(data):
            self._log.add("write", self._log.files[self._open[fd]], offset, bytes(data))

    def sync(self, fd: int) -> None:
        name = self._open[fd]
        self._log.sync(_kind(name), "sync", self._log.files[name])

    def sync_directory(self, directory: Path) -> None:
        if directory == self._log.directory:
            self._log.sync(f"name of {self._last}", "sync names")
        else:
            self._log.sync("name of directory", "sync parent")

    def truncate(self, fd: int, size: int) -> None:
        super().truncate(fd, size)
        self._log.add("size", self._log.files[self._open[fd]], size)

    def delete(self, path: Path) -> None:
        super().delete(path)
        self._log.delete(path.name)


class RecordingFiles(apsw.VFS):
    """SQLite's files, recorded except for the shared memory.

    SQLite itself syncs the directory when it makes or deletes a rollback journal. Such syncs for
    its log are left out: the journal must not depend on them.
    """

    def __init__(self, log: Log, name: str) -> None:
        super().__init__(name, "")
        self.log = log

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        path = str(getattr(name, "filename", lambda: name)())
        created = not os.path.exists(path)
        file = _RecordingFile(self.log, name, flags)
        if created:
            self.log.create(file.name)
        return file

    def xDelete(self, path: str, sync: bool) -> None:
        super().xDelete(path, sync)
        self.log.delete(os.path.basename(path))
        if sync:
            self.log.add("sync names")


class _RecordingFile(apsw.VFSFile):
    def __init__(self, log: Log, name: Any, flags: list[int]) -> None:
        super().__init__("", name, flags)
        path = str(getattr(name, "filename", lambda: name)())
        self.name = os.path.basename(path)
        self._log = log

    def xWrite(self, data: bytes, offset: int) -> None:
        super().xWrite(data, offset)
        self._log.add("write", self._log.files[self.name], offset, bytes(data))

    def xTruncate(self, size: int) -> None:
        super().xTruncate(size)
        self._log.add("size", self._log.files[self.name], size)

    def xSync(self, flags: int) -> None:
        self._log.sync(_kind(self.name), "sync", self._log.files[self.name])
        if self.name.endswith("-journal"):
            self._log.add("sync names")


def _kind(name: str) -> str:
    """The name in ``SYNCS`` of a file's sync."""
    if name.startswith("records-"):
        return "data"
    if name.startswith("snapshot-"):
        return "snapshot"
    if name.endswith("-wal"):
        return "index"
    if name.endswith("-journal"):
        return "rollback journal"
    return "checkpoint"


SECTOR = 512

Choice = Callable[[int], int]
"""Chooses how many of a number of unsynced changes survive."""


class _File:
    """The synced content, and the operations since."""

    def __init__(self, content: bytes = b"") -> None:
        self.content = bytearray(content)
        self.since: list[tuple[Any, ...]] = []

    def sync(self) -> None:
        self.content = bytearray(self.after(lambda changes: changes))
        self.since.clear()

    def after(self, choose: Choice) -> bytes:
        """The content after a power cut."""
        if not self.since:
            return bytes(self.content)
        sizes = [len(self.content)]
        sectors: dict[int, list[tuple[int, bytes]]] = {}
        for what, *change in self.since:
            if what == "size":
                sizes.append(change[0])
                continue
            offset, data = change
            sizes.append(max(sizes[-1], offset + len(data)))
            begin = 0
            while begin < len(data):
                sector, within = divmod(offset + begin, SECTOR)
                part = data[begin : begin + SECTOR - within]
                sectors.setdefault(sector, []).append((offset + begin, part))
                begin += len(part)
        size = sizes[choose(len(sizes) - 1)]
        after = self.content.ljust(max(sizes), b"\0")
        for parts in sectors.values():
            for offset, part in parts[: choose(len(parts))]:
                after[offset : offset + len(part)] = part
        return bytes(after[:size])


class DiskModel:
    """Follows operations (``recording``) and computes what a cut leaves of the directory."""

    def __init__(self, content: dict[str, bytes] | None) -> None:
        """content: that of each file of a fully synced directory; None if there is no directory."""
        self._named = content is not None
        self._made = content is not None
        self._files = {-n: _File(data) for n, data in enumerate((content or {}).values(), 1)}
        self._names: dict[str, int] = dict(zip(content or {}, self._files, strict=True))
        self._changes: list[tuple[str, int | None]] = []

    def first_files(self) -> dict[str, int]:
        """The numbers of the initial files."""
        return dict(self._names)

    def do(self, operation: tuple[Any, ...]) -> None:
        """Follow an operation."""
        match operation:
            case ("make",):
                self._made = True
            case ("sync parent",):
                self._named = self._made
            case ("create", name, file):
                self._files[file] = _File()
                self._changes.append((name, file))
            case ("delete", name):
                self._changes.append((name, None))
            case ("sync names",):
                self._names = self._names_after(lambda changes: changes)
                self._changes.clear()
            case ("sync", file):
                self._files[file].sync()
            case (what, file, *change):
                self._files[file].since.append((what, *change))

    def after_cut(self, chance: random.Random) -> dict[str, bytes] | None:
        """The content of each file after a cut; None if there is no directory."""
        choose = _choices(chance)
        if not self._named and not choose(1):
            return None
        names = self._names_after(choose)
        return {name: self._files[file].after(choose) for name, file in names.items()}

    def _names_after(self, choose: Choice) -> dict[str, int]:
        states: dict[str, list[int | None]] = {}
        for name, file in self._changes:
            states.setdefault(name, [self._names.get(name)]).append(file)
        names: dict[str, int | None] = dict(self._names)
        for name, files in states.items():
            names[name] = files[choose(len(files) - 1)]
        return {name: file for name, file in names.items() if file is not None}


def _choices(chance: random.Random) -> Choice:
    """A way to choose for a whole cut: nothing, everything, or a random part survives."""
    kind = chance.randrange(6)
    if kind == 0:
        return lambda changes: 0
    if kind == 1:
        return lambda changes: changes
    share = (0.05, 0.5, 0.8, 0.97)[kind - 2]

    def choose(changes: int) -> int:
        if not changes or chance.random() < share:
            return changes
        return chance.randrange(changes)

    return choose


if __name__ == "__main__":
    raise SystemExit(main())
