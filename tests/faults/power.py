"""Simulated power cuts over recorded writes: does the journal keep what it had acknowledged?

A chain of lives is recorded. The power is cut at random operations of each: a random part of the
unsynced data survives (``disk_model``), the journal is opened again, and everything in it is
compared with what it had acknowledged. The next life continues from one of these disks. A chain
only depends on its number and the seed.
"""

from __future__ import annotations

import argparse
import itertools
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from streamer.journal.record import JournalError
from streamer.journal.store import Journal
from tests.faults.disk_model import DiskModel
from tests.faults.lives import IDENTITY, NOTHING, SIZES, Event, Known, Life, kill, new_record
from tests.faults.recording import SYNCS, Log, RecordingFiles
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


if __name__ == "__main__":
    raise SystemExit(main())
