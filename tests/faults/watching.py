"""Kills the watcher of a folder at random moments: every record must count exactly once.

    python -m tests.faults.watching [KILLS] [--seed N] [--mistake NAME]

`streamer play` writes a run into a folder; `streamer send --watch` sends it to a daemon with a
journal, and is killed repeatedly. Between two lives, finished files are sometimes copied under
another name. In the end the journal must hold every played record once.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

from streamer.daemon.stored_batch import StoredBatch
from streamer.daemon.stored_messages import BATCH
from streamer.journal.reader import JournalReader
from tests.faults.growing import Growing
from tests.faults.kills import nursery
from tests.faults.nursery import ROOT, Nursery
from tests.waiting import DEADLINE

# lives of one run
LIVES = 50
_LONGEST_LIFE = 0.5
_READS_A_LIFE = 100
_CHANNELS = 64
_SECONDS_A_READ = 2.5

POINTS = ("store", "went_out", "hear")
"""After the ledger is stored, after a message was sent, after an answer came."""

MISTAKES = ("trust the ledger", "sync late")
"""Bugs to plant: treating begun files as sent, and beginning a file before that is stored."""


class Watchers:
    """A process that has loaded everything and forks watchers; they write to ``log``."""

    def __init__(self, log: Path, mistake: str | None = None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.watching", "--fork", str(log)]
            + (["--mistake", mistake] if mistake else []),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )

    def live(
        self, arguments: list[str], seconds: float | None, die: tuple[str, int] | None = None
    ) -> int:
        """Live for this long, or to the end; returns the exit status as ``Popen`` does.

        die: a point of ``POINTS`` at which it is killed, and how often it is passed before.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([arguments, seconds, die]) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(DEADLINE)
        self._process.stdout.close()


def _make(mistake: str | None) -> None:
    from streamer.watching.ledger import Ledger

    if mistake == "trust the ledger":
        Ledger._recover = lambda self, mark: None  # type: ignore[method-assign]
    elif mistake == "sync late":
        store, wait = Ledger.store, {}

        def store_second(self: Ledger) -> None:
            wait[0] = not wait.get(0)
            if wait[0]:
                store(self)

        Ledger.store = store_second  # type: ignore[method-assign]


def _die_at(point: str, passes: int) -> None:
    from streamer.client.core.producer import ProducerCore
    from streamer.watching.ledger import Ledger

    left = [passes]
    owner: type = Ledger if point == "store" else ProducerCore
    original = getattr(owner, point)

    def die(*given: Any) -> None:
        original(*given)
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    setattr(owner, point, die)


def _fork(log: str, mistake: str | None) -> None:
    """Serve lives: each line of standard input is one; the replies are exit statuses."""
    import io

    import streamer.cli.send_files  # noqa: F401
    from streamer.cli import daemon_options
    from streamer.cli.app import main
    from streamer.protocol.payloads import encode_batch
    from streamer.sequences.files import read_batches

    # load the kernels once, without threads, which a fork would lose
    for batch in read_batches(["x"], opened=io.BytesIO(b"@r\nACGT\n+\nIIII\n")):
        encode_batch(batch)
    _make(mistake)
    # for a daemon that starts on a busy machine
    daemon_options.ANSWER_SECONDS = DEADLINE
    for line in sys.stdin:
        arguments, seconds, die = json.loads(line)
        pid = os.fork()
        if not pid:
            out = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            os.dup2(out, 1)
            os.dup2(out, 2)
            if die:
                _die_at(*die)
            os._exit(main(arguments))
        ended = os.pidfd_open(pid)
        if not select.select([ended], [], [], DEADLINE if seconds is None else seconds)[0]:
            os.kill(pid, signal.SIGKILL)
        os.close(ended)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _write_reads(path: Path, rng: random.Random, count: int) -> list[str]:
    names = [f"{path.parent.name}-{i}" for i in range(count)]
    with open(path, "w") as file:
        for name in names:
            length = rng.randrange(10, 400)
            letters = "".join(rng.choices("ACGT", k=length))
            barcode = rng.choice(("barcode01", "barcode02", "unclassified"))
            file.write(f"@{name} barcode={barcode}\n{letters}\n+\n{'I' * length}\n")
    return names


def _copy_one(run: Path, rng: random.Random) -> None:
    files = sorted(run.rglob("FPL*.fastq*"))
    if files:
        source = rng.choice(files)
        shutil.copy(source, run / f"copy{rng.randrange(3)}{''.join(source.suffixes)}")


def _round(
    daemons: Nursery, watchers: Watchers, folder: Path, rng: random.Random, kills: int, plain: bool
) -> tuple[int, int]:
    """One run; returns how many records were checked, and the number of kills."""
    folder.mkdir(mode=0o700)
    names = _write_reads(folder / "reads.fastq", rng, kills * _READS_A_LIFE)
    daemon = daemons.start(Growing.configure(folder, rng.choice(("fsync", "os"))))
    run = folder / "run"
    run.mkdir()
    seconds = len(names) * _SECONDS_A_READ / _CHANNELS
    play = [
        "play", str(folder / "reads.fastq"), "--folder", str(run), "--channels", str(_CHANNELS),
        "--speed", str(seconds / (kills * _LONGEST_LIFE / 2)), "--file-reads", "25", "-q",
        *(["--plain"] if plain else []),
    ]  # fmt: skip
    watch = [
        "send", "--watch", str(run), "--to", f"ipc://{folder}/ingest", "--settle", "0.1", "-q",
        "--ledger", str(folder / "ledger"), "--name", "w", "--batch-reads", "7",
    ]  # fmt: skip
    done = 0
    with subprocess.Popen([sys.executable, "-m", "streamer", *play], cwd=ROOT) as player:
        try:
            while done < kills:
                if rng.random() < 0.7:
                    point = rng.choice(POINTS), rng.randrange(25)
                    status = watchers.live(watch, DEADLINE, point)
                else:
                    status = watchers.live(watch, rng.random() * _LONGEST_LIFE)
                if status == 0:
                    break
                assert status == -signal.SIGKILL, f"it ended by itself, with {status}"
                done += 1
                if rng.random() < 0.2:
                    _copy_one(run, rng)
            assert player.wait(DEADLINE) == 0
        finally:
            player.kill()
    # remove copies, since those of incomplete files count as new reads
    for copy in run.glob("copy*"):
        copy.unlink()
    status = watchers.live(watch, None)
    assert status == 0, f"it ended by itself, with {status}"
    os.kill(daemon, signal.SIGTERM)
    assert daemons.wait(daemon) == 0
    with closing(JournalReader(folder / "journal")) as reader:
        stored = [StoredBatch(record) for record in reader.records(0) if record.kind == BATCH]
    counts = Counter(name for batch in stored for name in batch.reads.names)
    lost = set(names) - set(counts)
    twice = [name for name, count in counts.items() if count > 1]
    assert not lost, f"lost {len(lost)}: {sorted(lost)[:5]}"
    assert not twice, f"counted twice: {len(twice)}: {twice[:5]}"
    assert len(counts) == len(names)
    return len(names), done


def run(kills: int, seed: int, mistake: str | None = None) -> tuple[int, int]:
    """Kill the watcher this often; returns records checked, and kills. mistake: one to plant."""
    rng = random.Random(seed)
    records = done = number = 0
    with (
        TemporaryDirectory(prefix="kills-") as made,
        nursery(folder := Path(made)) as daemons,
        Watchers(folder / "watchers", mistake) as watchers,
    ):
        while done < kills:
            own = folder / f"run{number}"
            try:
                checked, died = _round(
                    daemons, watchers, own, rng, min(LIVES, kills - done), plain=number % 2 == 0
                )
            except BaseException:
                for log in (folder / "log", folder / "watchers"):
                    print(log.read_text() if log.exists() else "", file=sys.stderr)
                raise
            shutil.rmtree(own)
            records, done, number = records + checked, done + died, number + 1
    return records, done


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kills", type=int, nargs="?", default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mistake", choices=MISTAKES)
    parser.add_argument("--fork", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.fork:
        _fork(given.fork, given.mistake)
        return
    began = time.monotonic()
    records, kills = run(given.kills, given.seed, given.mistake)
    seconds = time.monotonic() - began
    print(f"{kills} kills in {seconds:.0f} s, {records:,} records: lost 0, twice 0")


if __name__ == "__main__":
    _main()
