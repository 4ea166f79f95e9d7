"""What a soak compares and judges: every message, samples of resources and their slopes, jobs.

Everything is compared as it comes and then forgotten, so that the tester itself does not grow:
eight bytes are kept for each batch.
"""

from __future__ import annotations

import os
import random
from array import array
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgpack
import numpy as np

from streamer.daemon.stored_messages import BATCH
from streamer.journal.reader import JournalReader
from tests.daemon_kit import random_dna, write_fasta
from tests.faults.plain_client import Key, PlainHealer, PlainPuller

# compared messages to remember, as the feed may bring one of them again later
_REMEMBERED = 20_000

Run = tuple[str, int]
"""A producer's name and epoch."""


class LatencyHealer(PlainHealer):
    """Records for each batch the milliseconds from when it was due until it was published."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.latencies: list[float] = []

    def _hear(self, frames: list[bytes]) -> None:
        if frames[0] == b"read.":
            due = int(msgpack.unpackb(frames[2])[0])
            self.latencies.append((msgpack.unpackb(frames[1])["time"] - due) / 1e6)
        super()._hear(frames)


class Truth:
    """acked: batches of each run reported as durable. compared: messages on feed and sync."""

    def __init__(self) -> None:
        self.acked: dict[Run, int] = {}
        self.compared = 0
        self._at: dict[Run, array[int]] = {}
        """By run, the record of each of its batches."""
        self._applied: set[Key] = set()
        self._recent: set[Key] = set()
        self._recently: deque[Key] = deque()

    @property
    def batches(self) -> int:
        """How many batches sync has replayed."""
        return sum(map(len, self._at.values()))

    @property
    def is_complete(self) -> bool:
        """Whether everything acknowledged has been replayed."""
        return all(len(self._at.get(run, ())) >= count for run, count in self.acked.items())

    def compare(self, puller: PlainPuller, healer: PlainHealer) -> None:
        """Compare and forget what both have so far; AssertionError says what does not hold."""
        bad = [a for a in puller.answers if a["type"] in ("lost", "reset", "refused")]
        assert not bad, f"sync: {bad[0]}"
        puller.answers.clear()
        if healer.missing:
            return  # the healer still needs what it has heard
        self._applied.update(healer.order)
        healer.order.clear()
        done = 0
        for key in puller.order:
            topic, at = key
            if key not in puller.messages:
                done += 1  # the last one is kept
                continue
            if at > healer.last[topic]:
                break
            header, frames = puller.messages.pop(key)
            assert key in self._applied, f"lost by the subscriber, unnoticed: {key}"
            self._applied.remove(key)
            assert healer.messages.pop(key) == (header, frames), f"divergent: {key}"
            if topic == "read":
                self._count(header, at)
            self._remember(key)
            self.compared += 1
            done += 1
        # the next one is compared with it
        del puller.order[: max(0, min(done, len(puller.order) - 1))]
        low = min(puller.at, *healer.last.values())
        for key in [key for key in healer.messages if key[1] <= low]:
            assert key in self._recent, f"published and not stored, or twice: {key}"
            del healer.messages[key]

    def _count(self, header: dict[str, Any], at: int) -> None:
        run = header["producer"], header["producer_epoch"]
        records = self._at.setdefault(run, array("q"))
        expected = len(records) + 1
        assert header["producer_seq"] == expected, (
            f"lost or twice: {run} has {header['producer_seq']} where {expected} follows"
        )
        records.append(at)

    def _remember(self, key: Key) -> None:
        self._recent.add(key)
        self._recently.append(key)
        if len(self._recently) > _REMEMBERED:
            self._recent.discard(self._recently.popleft())

    def check_journal(self, directory: Path) -> tuple[int, int]:
        """Check the journal of an ended daemon; returns its batches, and those that expired.

        AssertionError says what was lost or duplicated.
        """
        for run, count in self.acked.items():
            there = len(self._at.get(run, ()))
            assert there >= count, f"lost: {run} has {count} acknowledged, {there} stored"
        with closing(JournalReader(directory)) as reader:
            oldest = reader.oldest
            found = [
                (record.key.producer, record.key.epoch, record.key.sequence, record.at)
                for record in reader.records(oldest - 1)
                if record.kind == BATCH and record.key
            ]
        assert len({key[:3] for key in found}) == len(found), "twice in the journal"
        known = {
            (*run, number, at)
            for run, records in self._at.items()
            for number, at in enumerate(records, 1)
            if at >= oldest
        }
        missing, more = known - {*found}, {*found} - known
        assert not missing, f"lost: {sorted(missing)[:3]}"
        assert not more, f"stored and never replayed: {sorted(more)[:3]}"
        return len(found), self.batches - len(found)


BLOCKS = 12
WARM_UP = 0.25
"""The share of the time that is left out, while pools, caches and the journal fill up."""
SHORTEST = 900.0
"""Seconds after the warm-up from which slopes are judged; in shorter runs they are only shown."""

# quantile 0.995 of Student's distribution with BLOCKS - 2 degrees of freedom: several are judged
_QUANTILE = 3.1693

BOUNDS: Mapping[str, float] = {
    "daemon_mb": 20.0,
    "children_mb": 20.0,
    "descriptors": 4.0,
    "disk_mb": 40.0,
    "p50_ms": 5.0,
    "p99_ms": 50.0,
}
"""For each judged column, the allowed growth an hour: less would not be noticed in a day."""


class Slope(NamedTuple):
    """A column's slope an hour, and half the width of its 99 % interval."""

    mean: float
    slope: float
    half: float

    def grows(self, bound: float) -> bool:
        """Whether even the lower end of the interval is above a bound."""
        return self.slope - self.half > bound


def slope_of(seconds: Sequence[float], values: Sequence[float]) -> Slope | None:
    """The slope of ``values`` an hour; None if a block has fewer than two samples.

    seconds: ascending; samples in the first ``WARM_UP`` of the time are left out, and so are NaNs.
    """
    times, found = np.asarray(seconds, float), np.asarray(values, float)
    if len(times) == 0:
        return None
    kept = (times >= times[0] + WARM_UP * (times[-1] - times[0])) & np.isfinite(found)
    times, found = times[kept] / 3600, found[kept]
    if len(times) < 2 * BLOCKS:
        return None
    edges = np.linspace(times[0], times[-1], BLOCKS + 1)[1:-1]
    block = np.searchsorted(edges, times, side="right")
    counts = np.bincount(block, minlength=BLOCKS)
    if counts.min() < 2:
        return None
    x = np.bincount(block, times, BLOCKS) / counts
    y = np.bincount(block, found, BLOCKS) / counts
    centred = x - x.mean()
    slope = float(centred @ y / (centred @ centred))
    residuals = y - y.mean() - slope * centred
    squares = float(residuals @ residuals)
    error = (squares / (BLOCKS - 2) / float(centred @ centred)) ** 0.5
    follows = float(residuals[1:] @ residuals[:-1]) / squares if squares > 1e-18 else 0.0
    follows = min(max(follows, 0.0), 0.9)
    error *= ((1 + follows) / (1 - follows)) ** 0.5
    return Slope(float(found.mean()), slope, _QUANTILE * error)


def slopes_of(rows: Sequence[Mapping[str, float]]) -> dict[str, Slope | None]:
    """The slope of each column of ``BOUNDS``; rows have ``seconds``, too."""
    seconds = [row["seconds"] for row in rows]
    return {name: slope_of(seconds, [row[name] for row in rows]) for name in BOUNDS}


def is_long_enough(rows: Sequence[Mapping[str, float]]) -> bool:
    """Whether slopes are judged."""
    return bool(rows) and (1 - WARM_UP) * (rows[-1]["seconds"] - rows[0]["seconds"]) >= SHORTEST


def table(slopes: Mapping[str, Slope | None], *, judged: bool) -> tuple[str, list[str]]:
    """Lines for people, and the columns that grow."""
    lines = ["| series | mean | slope an hour, 99 % interval | bound an hour | verdict |"]
    lines.append("| -- | -- | -- | -- | -- |")
    growing = []
    for name, slope in slopes.items():
        if slope is None:
            lines.append(f"| {name} | | too few samples | {BOUNDS[name]:g} | not judged |")
            continue
        verdict = "not judged" if not judged else "holds"
        if judged and slope.grows(BOUNDS[name]):
            verdict = "grows"
            growing.append(name)
        interval = f"{slope.slope:+.2f} ± {slope.half:.2f}"
        lines.append(f"| {name} | {slope.mean:.2f} | {interval} | {BOUNDS[name]:g} | {verdict} |")
    return "\n".join(lines), growing


Row = dict[str, float]

COLUMNS = (
    *("seconds", "daemon_mb", "children_mb", "children", "descriptors", "threads"),
    *("disk_mb", "batches", "p50_ms", "p99_ms", "clients_killed", "reloads", "load"),
)

_PANELS = {
    "daemon_mb": "memory of the daemon, MB",
    "children_mb": "memory of its children, MB",
    "descriptors": "open descriptors",
    "disk_mb": "disk use of the journal, MB",
    "p50_ms": "due to published, p50, ms",
    "p99_ms": "due to published, p99, ms",
}


def children_of(process: int) -> list[int]:
    """All descendants."""
    found = []
    # threads and processes come and go
    with suppress(OSError):
        for task in Path(f"/proc/{process}/task").iterdir():
            with suppress(OSError):
                for child in map(int, (task / "children").read_text().split()):
                    found += [child, *children_of(child)]
    return found


def sample(process: int, journal: Path, latencies: Sequence[float]) -> Row:
    """Current memory, descriptors, threads and disk use; quantiles of latencies, NaN if none."""
    children = children_of(process)
    family = [process, *children]
    p50, p99 = np.percentile(latencies, (50, 99)) if latencies else (np.nan, np.nan)
    return {
        "daemon_mb": memory(process),
        "children_mb": sum(map(memory, children)),
        "children": len(children),
        "descriptors": sum(_entries(one, "fd") for one in family),
        "threads": sum(_entries(one, "task") for one in family),
        "disk_mb": _disk(journal) / 1e6,
        "batches": len(latencies),
        "p50_ms": float(p50),
        "p99_ms": float(p99),
        "load": os.getloadavg()[0],
    }


def memory(process: int) -> float:
    """The resident megabytes of a process."""
    with suppress(OSError):
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
    return 0.0


def _entries(process: int, name: str) -> int:
    with suppress(OSError):
        return len(os.listdir(f"/proc/{process}/{name}"))
    return 0


def _disk(folder: Path) -> int:
    """Bytes that the files below a folder use on disk."""
    size = 0
    for path in folder.rglob("*"):
        # retention deletes files meanwhile
        with suppress(OSError):
            size += 512 * path.stat().st_blocks
    return size


def write_tsv(path: Path, rows: Sequence[Mapping[str, float]]) -> None:
    """Write one row for each sample, after a header."""
    lines = ["\t".join(COLUMNS), *("\t".join(f"{row[c]:.6g}" for c in COLUMNS) for row in rows)]
    path.write_text("\n".join(lines) + "\n")


def draw(path: Path, rows: Sequence[Mapping[str, float]], warm: float) -> None:
    """The series over time as an SVG; the first ``warm`` seconds are shaded."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 6.5), layout="constrained")
    axes = figure.subplots(3, 2, sharex=True)
    minutes = [row["seconds"] / 60 for row in rows]
    for axis, (column, title) in zip(axes.flat, _PANELS.items(), strict=True):
        axis.plot(minutes, [row[column] for row in rows], linewidth=0.9)
        axis.axvspan(0, warm / 60, color="0.9")
        axis.set_title(title, fontsize=9, loc="left")
        axis.set_ylim(bottom=0)
    for axis in axes[-1]:
        axis.set_xlabel("minutes; grey: warm-up, left out of the slopes", fontsize=8)
    FigureCanvasSVG(figure).print_svg(path, metadata={"Date": None})


LINES = (
    ("asm", "-k", "3", "--patterns", "patterns.fa", "texts.fa"),
    ("hamming", "-k", "3", "--patterns", "patterns.fa", "texts.fa"),
    ("primer", "-k", "4", "one.fa", "other.fa"),
    ("lcs", "one.fa", "other.fa"),
)
CANCELLED = 0.25
"""The share of jobs to cancel, unless they have ended by then."""

_ENDED = ("done", "failed", "cancelled", "interrupted")

Request = tuple[str, dict[str, Any]]


def write_inputs(folder: Path, rng: random.Random) -> None:
    """The files of ``LINES``, in a new folder."""
    folder.mkdir()
    one, other = random_dna(rng, 2_000), random_dna(rng, 20_000)
    write_fasta(folder / "one.fa", [("one", one)])
    write_fasta(folder / "other.fa", [("other", other)])
    write_fasta(folder / "texts.fa", [(f"t{i}", random_dna(rng, 20_000)) for i in range(200)])
    write_fasta(folder / "patterns.fa", [(f"p{i}", random_dna(rng, 24)) for i in range(20)])


class SoakJobs:
    """Makes requests to control and processes the replies, without I/O.

    ended: jobs by their last state.
    """

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.ended = Counter[str]()
        self._folder, self._rng = str(folder), rng
        self._submitted = 0
        self._id = ""
        self._asked = self._cancel = False
        self._sizes: dict[str, int] = {}

    @property
    def active(self) -> bool:
        """Whether a job waits or runs."""
        return bool(self._id) or self._asked

    def submit(self) -> Request:
        """The request for the next job; call it while none is active."""
        line = list(LINES[self._submitted % len(LINES)])
        self._submitted += 1
        self._asked = True
        self._cancel = self._rng.random() < CANCELLED
        return "submit", {"line": line, "folder": self._folder}

    def follow(self) -> Request | None:
        """A request about the active job, None while a reply is due."""
        if self._asked or not self._id:
            return None
        self._asked = True
        command = "cancel" if self._cancel else "job"
        self._cancel = False
        return command, {"job": self._id}

    def hear(self, command: str, reply: Mapping[str, Any]) -> None:
        """Process a reply; AssertionError if the job did not go as it should."""
        self._asked = False
        if command == "cancel" and reply.get("reason") == "conflict":
            return  # the job ended first
        assert reply["ok"], f"{command} was refused: {reply}"
        job = reply["job"]
        self._id = job["id"]
        if job["state"] not in _ENDED:
            return
        self._id = ""
        self.ended[job["state"]] += 1
        assert job["state"] in ("done", "cancelled"), f"a job did not end well: {job}"
        if job["state"] == "done":
            before = self._sizes.setdefault(job["command"], job["bytes"])
            assert job["bytes"] == before > 0, f"a job has another result than before: {job}"
