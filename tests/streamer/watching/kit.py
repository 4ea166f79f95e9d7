"""A folder watched without a daemon, and without a clock: the test has its turn between rounds."""

from __future__ import annotations

import gzip
import random

from streamer.watching.folder import UNTIL, Folder
from streamer.watching.ledger import Ledger
from streamer.watching.watcher import Watcher

SETTLE = 5.0


def record(name, rng=None, length=30):
    letters = "".join((rng or random.Random(name)).choices("ACGT", k=length))
    return f"@{name} ch=7\n{letters}\n+\n{'I' * length}\n"


def text_of(names):
    return "".join(map(record, names))


def named(prefix, count, first=0):
    return [f"{prefix}{i}" for i in range(first, first + count)]


def write(path, text):
    """A whole file, compressed by its name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = text.encode()
    path.write_bytes(gzip.compress(data) if path.suffix in (".gz", ".bgz") else data)


class Turns:
    """In the place of hints: each wait is a step of the test, and time passes meanwhile.

    steps: functions that change the folder. Afterwards the run ends. Each may return the paths that
    the file system tells of; nothing is as if it told of too many.
    """

    def __init__(self, folder, steps, seconds=SETTLE + 2):
        self.now = 1000.0
        self._folder = folder
        self._steps = list(steps)
        self._seconds = seconds

    def wait(self, seconds):
        self.now += self._seconds
        if self._steps:
            return self._steps.pop(0)()
        (self._folder / "final_summary_x.txt").touch()
        return None


class Life:
    """A watcher of ``folder`` from its start to its end: what it said, and the pieces it sent."""

    def __init__(
        self, folder, ledger, *, mark=b"", steps=(), settle=SETTLE, sizes=(10**6, 4000), until=UNTIL
    ):
        self.pieces = []
        self.rows = []
        self.notes = []
        self.faults = []
        self.stopped = False
        self.turns = Turns(folder, steps)
        self.ledger = Ledger(str(ledger), mark, "x")
        self.watcher = Watcher(
            Folder(str(folder), until),
            self.ledger,
            self.turns,
            settle,
            sizes={"batch_bases": sizes[0], "batch_reads": sizes[1]},
            stopped=lambda: self.stopped,
            acknowledged=lambda: self.watcher.reads,
            note=lambda line: self.notes.append(line.replace(f"{folder}/", "")),
            fault=lambda line: self.faults.append(line.replace(f"{folder}/", "")),
            clock=lambda: self.turns.now,
        )

    def run(self, pieces=None):
        """Live until the run is over, or so many pieces have been read; then it is killed."""
        for piece in self.watcher:
            self.pieces.append(piece)
            self.rows.append(len(self.ledger._rows()))
            if len(self.pieces) == pieces:
                break
        else:
            self.ledger.store()
        self.ledger._db.close()
        return self

    @property
    def names(self):
        return [name for piece in self.pieces for name in piece.reads.names]

    def durable(self, rng):
        """The names and the mark of any part of what was read, as if the rest were lost."""
        count = rng.randrange(len(self.pieces) + 1)
        if not count:
            return [], None
        last = self.pieces[count - 1]
        done = rng.randint(1, len(last.reads))
        names = [name for piece in self.pieces[: count - 1] for name in piece.reads.names]
        return [*names, *list(last.reads.names)[:done]], last.mark(done)


def live(run, *steps, **options):
    """One life of a watcher of this folder, with these steps."""
    return Life(run, run.parent / "ledger", steps=steps, **options).run()
