"""The cost of batch jobs for the stream: latency without and with each kind of job, in pairs.

Daemon, producer, subscriber and jobs are separate processes, over local sockets, on the CPU.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.durability import frozen_daemon, times_of
from benchmarks.inputs import LETTERS, random_codes
from benchmarks.processes import cpu_seconds
from benchmarks.serving import SECONDS, Endpoints, serving
from benchmarks.suite import Row
from streamer.client import Control, RefusedError

_BASES = 50_000_000
_PATTERNS = 1000
_PATTERN = 24
_COPIES = 50
_LOOK_SECONDS = 0.05
_FIGURES = ("p50 ms", "p99 ms", "CPU ms")
_ACTIVE = ("waiting", "running")


def jobs(seconds: float, pairs: int, bases: int = _BASES) -> Iterator[Row]:
    """Milliseconds from when a batch was due to the last message about it, at half load.

    A pair is two measurements of ``seconds`` each, without and with jobs of one kind running one
    after another; the next pair is in the opposite order. bases: those of the text that jobs
    search; other sequences are in proportion. ``CPU ms`` is the CPU time of the daemon's process
    for a batch. One row for each pair, then one of medians, with the quartiles of the changes in
    percent.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = [
            *frozen_daemon(folder, "none"),
            f"jobs.directories=['{folder}']", f"jobs.results='{folder / 'results'}'",
        ]  # fmt: skip
        kinds = _kinds(folder, bases)
        with serving(folder, settings) as (endpoints, daemon):
            took, _ = times_of(endpoints, None, seconds)
            rate = took.size / took[-1] / 2
            for kind, line in kinds.items():
                # compilation does not count
                with _running(endpoints, line, 1):
                    pass
                rows = []
                for pair in range(pairs):
                    found = {}
                    for beside in (False, True) if pair % 2 == 0 else (True, False):
                        with _running(endpoints, line, _COPIES if beside else 0) as control:
                            found[beside] = _latency(endpoints, daemon.pid, rate, seconds)
                            if beside and not _active(control):
                                raise TimeoutError(f"the jobs ended before the measurement: {kind}")
                    rows.append([*found[False], *found[True]])
                    head = {"job": kind, "pair": str(pair + 1), "batches/s": rate}
                    yield head | _row(np.array(rows[-1:]))
                yield {"job": kind, "pair": "median", "batches/s": rate} | _row(np.array(rows))


def _kinds(folder: Path, bases: int) -> dict[str, list[str]]:
    """A command line of each kind, with its files."""
    text, alpha, a, b, patterns = (
        _written(folder / f"{name}.fa", sizes, seed)
        for seed, (name, sizes) in enumerate(
            {
                "text": [bases],
                "alpha": [bases // 1000],
                "a": [bases // 25],
                "b": [bases // 25],
                "patterns": [_PATTERN] * _PATTERNS,
            }.items()
        )
    )
    return {
        "asm": ["asm", text, "-k", "2", "--patterns", patterns],
        "hamming": ["hamming", text, "-k", "2", "--patterns", patterns],
        "primer": ["primer", alpha, text, "-k", "4"],
        "lcs": ["lcs", a, b],
    }


def _written(path: Path, sizes: Sequence[int], seed: int) -> str:
    """A FASTA file of random records of these sizes."""
    with path.open("wb") as file:
        for number, size in enumerate(sizes):
            letters = LETTERS[random_codes(size, 1000 * seed + number)]
            file.write(b">r%d\n%b\n" % (number, letters.tobytes()))
    return str(path)


@contextmanager
def _running(endpoints: Endpoints, line: Sequence[str], copies: int) -> Iterator[Control]:
    """Submit this many equal jobs, which run one at a time; at the end all are cancelled."""
    with Control(endpoints["control"], answer_seconds=SECONDS) as control:
        ids = [control.submit(line)["id"] for _ in range(copies)]
        while ids and control.job(ids[0])["progress"] == 0 and control.job(ids[0])["ended"] is None:
            time.sleep(_LOOK_SECONDS)
        yield control
        # waiting jobs first, so that none of them begins
        for id_ in reversed(ids):
            try:
                control.cancel(id_)
            except RefusedError:
                # the job has ended or was forgotten
                continue
        _wait_until_none_is_left(control)


def _active(control: Control) -> int:
    """How many jobs wait or run."""
    counts = control.status()["jobs"]
    return sum(counts[state] for state in _ACTIVE)


def _wait_until_none_is_left(control: Control) -> None:
    while _active(control):
        time.sleep(_LOOK_SECONDS)


def _latency(endpoints: Endpoints, daemon: int, rate: float, seconds: float) -> list[float]:
    """The figures of one measurement."""
    before = cpu_seconds(daemon)
    arrived, due = times_of(endpoints, rate, seconds)
    spent = 1e3 * (cpu_seconds(daemon) - before) / arrived.size
    return [*np.percentile((arrived - due) * 1e3, [50, 99]).tolist(), spent]


def _row(rows: NDArray[np.float64]) -> Row:
    """Medians of the figures without and with jobs, and quartiles of their changes."""
    without, beside = rows[:, :3], rows[:, 3:]
    row: Row = {}
    for at, name in enumerate(_FIGURES):
        row |= {name: float(np.median(without[:, at]))}
        row |= {f"{name}, job": float(np.median(beside[:, at]))}
    changes = 100 * (beside / without - 1)
    for at, name in enumerate(_FIGURES):
        low, middle, high = np.percentile(changes[:, at], [25, 50, 75])
        quartiles = f" ({low:+.1f} to {high:+.1f})" if len(rows) > 1 else ""
        row[f"{name.split()[0]} %"] = f"{middle:+.1f}{quartiles}"
    return row
