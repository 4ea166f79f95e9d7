"""Daemons that start in a few milliseconds, forked from a process that has compiled everything.

Run as a program: each line of standard input is a map with ``config`` (a path), ``die`` (a point of
``POINTS`` and how often to pass it before, or null) and ``mistake`` (one of ``MISTAKES`` to plant,
or null); the reply is the daemon's PID.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from functools import partialmethod
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).parents[2]

POINTS = ("write", "sync", "commit", "publish", "acknowledge")
"""After the record's bytes are written, after they are synced, and so on."""

REVISE = "revise"
"""After kept batches were matched again; only reached after a reload."""

MISTAKES = (
    "acknowledge early",
    "publish early",
    "forget producers",
    "reuse an epoch",
    "skip a revision",
)
"""Bugs to plant in a daemon, each of which kills must find."""

# records between snapshots, and kept batches matched again in one step; small, as lives are short
_SNAPSHOT_RECORDS, _REVISED_RECORDS = 60, 8


class Nursery:
    """The process that forks.

    configs: those of daemons similar to later ones. Daemons write their log beside their
    configuration.
    """

    def __init__(self, configs: Sequence[Path]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.nursery", *map(str, configs)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )

    def start(
        self, config: Path, die: tuple[str, int] | None = None, mistake: str | None = None
    ) -> int:
        """Start a daemon; returns its PID."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(
            json.dumps({"config": str(config), "die": die, "mistake": mistake}) + "\n"
        )
        process.stdin.flush()
        return int(process.stdout.readline())

    def wait(self, pid: int) -> int:
        """The exit status of a daemon once it has ended, as ``Popen.returncode``."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps({"wait": pid}) + "\n")
        process.stdin.flush()
        return int(process.stdout.readline())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


def _main(configs: Sequence[str]) -> None:
    from streamer.daemon.config import load
    from streamer.daemon.engine import spec_on_device
    from streamer.daemon.service import warm_up
    from trie.cpu import threads

    for config in configs:
        warm = load(config)
        warm_up(warm, spec_on_device(warm))
    # its threads do not exist in a fork, and hold no lock that a daemon needs
    threads._pool.cache_clear()
    warnings.filterwarnings("ignore", ".*multi-threaded, use of fork", DeprecationWarning)
    _hurry()
    for line in sys.stdin:
        asked = json.loads(line)
        if "wait" in asked:
            _, status = os.waitpid(asked["wait"], 0)
            print(os.waitstatus_to_exitcode(status), flush=True)
            continue
        pid = os.fork()
        if pid == 0:
            _run(asked["config"], asked["die"], asked["mistake"])
        print(pid, flush=True)


def _hurry() -> None:
    """Lower limits of gigabytes or seconds, so that they are reached in these short lives."""
    from streamer.daemon.core.log import SNAPSHOT_AFTER, LogCore
    from streamer.daemon.kept_batches import KeptBatches

    after = SNAPSHOT_AFTER._replace(records=_SNAPSHOT_RECORDS)
    for owner, small in (
        (LogCore, {"snapshot_after": after}),
        (KeptBatches, {"records": _REVISED_RECORDS}),
    ):
        owner.__init__ = partialmethod(owner.__init__, **small)  # type: ignore[misc,assignment]


def _run(config: str, die: tuple[str, int] | None, mistake: str | None) -> None:
    from streamer.daemon.config import load
    from streamer.daemon.logs import configure
    from streamer.daemon.service import run

    log = Path(config).with_name("log")
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(file, 1)
    os.dup2(file, 2)
    # if the nursery is killed, its daemons are killed, too
    die_with_parent()
    code = 1
    try:
        loaded = load(config)
        configure(loaded.log.level, loaded.log.format)
        if mistake is not None:
            make(mistake)
        if die is not None:
            die_at(*die)
        run(loaded)
        code = 0
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(code)


def die_with_parent() -> None:
    """Have the kernel kill this process once the thread that started it has ended."""
    import ctypes

    set_death_signal = 1
    ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL)


def die_at(point: str, passes: int) -> None:
    """Kill this process when it passes a point, after passing it ``passes`` times before."""
    from streamer.daemon.feed import FeedWorker
    from streamer.daemon.ingest import IngestWorker
    from streamer.daemon.kept_batches import KeptBatches
    from streamer.journal.disk import Disk
    from streamer.journal.store import Journal

    left = [passes]

    def reached() -> None:
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    owner, name = {
        "write": (Disk, "write"),
        "sync": (Disk, "sync"),
        "commit": (Journal, "append"),
        "publish": (FeedWorker, "_publish"),
        "acknowledge": (IngestWorker, "_send"),
        REVISE: (KeptBatches, "revise"),
    }[point]
    _after(owner, name, reached)


def make(mistake: str) -> None:
    """Change the daemon's code to plant a mistake."""
    from streamer.daemon.core.ingest import IngestCore
    from streamer.daemon.journal import JournalWorker
    from streamer.daemon.kept_batches import KeptBatches
    from streamer.daemon.service import Service
    from streamer.journal.store import Journal

    accept, append = IngestCore.accept, JournalWorker._append
    revised = KeptBatches._revised

    def accept_at_once(self: Any, *given: Any) -> Any:
        item = accept(self, *given)
        self.durable([item])
        return item

    def publish_first(self: Any) -> None:
        forward = self.__dict__.setdefault("_really_forward", self._forward)
        for group in self._core._waiting:
            forward(group)
        self._forward = lambda group: None
        append(self)

    def leave_out(self: Any, at: int, batch: Any, *given: Any) -> Any:
        return None if batch.about["batch"] % 2 else revised(self, at, batch, *given)

    match mistake:
        case "acknowledge early":
            IngestCore.accept = accept_at_once  # type: ignore[method-assign]
        case "publish early":
            JournalWorker._append = publish_first  # type: ignore[method-assign]
        case "forget producers":
            Service._known = lambda *_: {}  # type: ignore[method-assign,assign,misc]
        case "reuse an epoch":
            Journal.epoch = property(lambda _: 1)  # type: ignore[method-assign,assign]
        case "skip a revision":
            KeptBatches._revised = leave_out  # type: ignore[method-assign]
        case _:
            raise ValueError(mistake)


def _after(owner: type, name: str, then: Callable[[], None]) -> None:
    before = getattr(owner, name)

    def wrapped(*given: Any, **named: Any) -> Any:
        result = before(*given, **named)
        then()
        return result

    setattr(owner, name, wrapped)


if __name__ == "__main__":
    _main(sys.argv[1:])
