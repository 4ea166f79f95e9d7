"""The state of the run: messages and replies in, fields for the page out. Without I/O.

A curve has a point for each cell of ``step`` seconds. When there are too many, the step doubles and
two points become one; so a page that is open for a day holds as much as one that is open for ten
minutes. A panel may have 100,000 targets, and each barcode a row of each: the page shows those with
the most reads, and says how many there are.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from heapq import nlargest
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer import __version__
from streamer.client import messages
from streamer.client.core.subscriber import FINAL
from streamer.matching.panel import DETECTED, MORE_NEEDED, NOT_DETECTED, Panel
from streamer.sequences.sample_sheet import SampleSheet


def quantile(q: float, bounds: Sequence[float], counts: Sequence[int]) -> float | None:
    """A quantile as Prometheus estimates it: even within a bucket; None of an empty histogram.

    bounds: the largest value of each bucket; ``counts`` has one more, of the rest, for which the
    last bound stands.
    """
    rank, below = q * sum(counts), 0
    if not rank > 0:
        return None
    for at, count in enumerate(counts[:-1]):
        if below + count >= rank:
            least = bounds[at - 1] if at else 0.0
            return least + (bounds[at] - least) * (rank - below) / count
        below += count
    return bounds[-1]


EDGES = [0, *(round(2 ** (half / 2)) for half in range(8, 2 * 22 + 1))]
"""The least length of each bin: 0, 16, 23, 32, ... 4,194,304; the last bin has the rest."""


class Lengths:
    """Counts of reads, and of their bases, by length."""

    def __init__(self) -> None:
        self.reads, self.bases = np.zeros((2, len(EDGES)), np.int64)

    def add(self, lengths: NDArray[np.int64]) -> None:
        """Count reads of these lengths (int64)."""
        bins = np.searchsorted(EDGES, lengths, side="right") - 1
        self.reads += np.bincount(bins, minlength=len(EDGES))
        self.bases += np.bincount(bins, lengths, len(EDGES)).astype(np.int64)

    def fields(self) -> dict[str, Any]:
        """For the page: edges, reads and bases of each bin."""
        return {"edges": EDGES, "reads": self.reads.tolist(), "bases": self.bases.tolist()}


MAX_PRODUCERS = 200
"""Those silent for longest are forgotten."""


class Senders:
    """Batches, reads and bases of each producer."""

    def __init__(self) -> None:
        # batches, reads, bases, and when the last batch came; the last to send stands last
        self._sent: dict[str, list[float]] = {}

    def add(self, name: str, reads: int, bases: int, now: float) -> None:
        """A batch; now: in seconds."""
        batches, reads_before, bases_before, _ = self._sent.pop(name, [0, 0, 0, 0.0])
        self._sent[name] = [batches + 1, reads_before + reads, bases_before + bases, now]
        if len(self._sent) > MAX_PRODUCERS:
            del self._sent[next(iter(self._sent))]

    def rows(self) -> list[list[Any]]:
        """Name, batches, reads, bases, and when the last batch came, the last to send first."""
        return [[name, *sent] for name, sent in reversed(self._sent.items())]


MAX_POINTS = 600


class Point(NamedTuple):
    """The state at ``time``, in seconds of a clock that nobody sets, as all times here.

    reads, bases: so far. waiting: bytes of batches at ingest. p50, p99: seconds from the acceptance
    of a batch to its publication since the point before, None without a batch.
    """

    time: float
    reads: int
    bases: int
    waiting: int
    p50: float | None
    p99: float | None


class History:
    """Points in order of time. thinned: how often two became one."""

    def __init__(self, step: float = 1.0) -> None:
        self.points: list[Point] = []
        self.thinned = 0
        self._step = step

    def add(self, point: Point) -> bool:
        """Add a point; whether it stands in place of the last one, being of the same cell."""
        if not self.points or self._cell(self.points[-1]) < self._cell(point):
            self.points.append(point)
            if len(self.points) > MAX_POINTS:
                self._thin()
            return False
        self.points[-1] = _joined(self.points[-1], point)
        return True

    def _cell(self, point: Point) -> int:
        return int(point.time // self._step)

    def _thin(self) -> None:
        self.thinned += 1
        self._step *= 2
        points, self.points = self.points, []
        for point in points:
            self.add(point)


def _joined(before: Point, point: Point) -> Point:
    """One point for both: counts as they are now, of times and latencies the larger one."""
    return point._replace(
        time=max(before.time, point.time),
        p50=_larger(before.p50, point.p50),
        p99=_larger(before.p99, point.p99),
    )


def _larger(this: float | None, other: float | None) -> float | None:
    known = [value for value in (this, other) if value is not None]
    return max(known, default=None)


MAX_TARGETS, MAX_BARCODES, MAX_MAP_TARGETS = 500, 100, 100
"""Rows of targets; rows and columns of the heat map."""

Row = list[Any]
Key = tuple[str | None, ...]
_MOST_SECONDS = 30 * 24 * 3600
# of a row of targets, behind the barcode
_READS, _BASES, _MATCHES, _KMERS, _SEEN = 1, 2, 3, 4, 5


class TargetRows:
    """Rows of counts by target, and by barcode and target; ``version``: of the dictionary.

    sheet: the samples, which are shown before they have a read.
    """

    def __init__(self, panel: Panel, sheet: SampleSheet | None = None) -> None:
        self._sheet = sheet or SampleSheet()
        self.version: int | None = None
        self.complete = True
        self._panel = panel
        self._watched = panel.watched
        self._targets: dict[Key, Row] = {}
        self._barcodes: dict[Key, Row] = {}
        self.now = 0.0
        # of each barcode, when this process first saw it, and its reads then
        self._first: dict[str | None, tuple[float, int]] = {}

    def clear(self) -> None:
        """Forget all rows."""
        self._targets, self._barcodes = {}, {}

    def take(self, rows: Iterable[Sequence[Any]], *, by_barcode: bool) -> None:
        """Rows that have changed."""
        kept = self._barcodes if by_barcode else self._targets
        for row in rows:
            kept[tuple(row[: 1 + by_barcode])] = list(row)

    def replace(self, rows: Iterable[Sequence[Any]], *, by_barcode: bool) -> None:
        """All rows, in place of those that were known."""
        by_key = {tuple(row[: 1 + by_barcode]): list(row) for row in rows}
        if by_barcode:
            self._barcodes = by_key
        else:
            self._targets = by_key

    def judge(self, panel: Panel, sheet: SampleSheet) -> None:
        """Judge by these from now on."""
        self._panel, self._sheet, self._watched = panel, sheet, panel.watched

    def fields(self) -> dict[str, Any]:
        """For the page: the targets with the most reads, and the same for each barcode.

        targets: rows of ``match --report targets``. map: barcode, the numbers of the columns
        ``map_targets``, of ``map_groups``, for each of them: reads, breadth, depth, detected (0 or
        1). of: how many targets and barcodes there are. samples: as from that method. rule: of
        verdicts, None without thresholds. watched: how many targets have one. alarms: what is wrong
        with the run.
        """
        targets = [row for row in self._targets.values() if row[0] is not None]
        top = nlargest(MAX_TARGETS, targets, key=_weight)
        codes = self._codes()
        samples = self.samples(codes)
        detected: dict[str | None, list[str]] = {row[0]: [] for row in samples}
        limits = self._panel.limits
        known = {key: DETECTED for key, row in self._barcodes.items() if row[1 + _READS]}
        for (barcode, target), code in (codes if limits else known).items():
            if code == DETECTED and target is not None:
                detected[barcode].append(target)
        columns = self._columns(targets, detected)
        groups = {member: group for group, names in self._panel.groups.items() for member in names}
        order = {group: at for at, group in enumerate(self._panel.groups)}
        # as a panel is read, group by group
        columns.sort(key=lambda name: order.get(groups.get(name, ""), len(order)))
        reads = {row[0]: row[3] for row in samples}
        return {
            "run": self._sheet.run,
            "rule": self._panel.rule() if limits else None,
            "watched": len(self._judged()) if limits else 0,
            "alarms": [*self._panel.alarms(self._sheet, detected, reads)],
            "samples": samples[:MAX_BARCODES],
            "targets": top,
            "unassigned": self._targets.get((None,)),
            "map_targets": columns,
            "map_groups": [groups.get(name) for name in columns],
            "map": [
                [row[0], [self._cell(row[0], target, codes) for target in columns]]
                for row in samples[:MAX_BARCODES]
            ],
            "of": {"targets": len(targets), "barcodes": len(samples)},
            "version": self.version,
            "complete": self.complete,
        }

    def _columns(
        self, targets: Sequence[Row], detected: Mapping[str | None, Sequence[str]]
    ) -> list[str]:
        """The targets of the heat map: all, or those that most samples lack or with most reads."""
        has = Counter(name for names in detected.values() for name in names)
        judged = self._judged() if self._panel.limits else set[str]()
        chosen = [row for row in targets if row[0] in judged or _weight(row) > (0, 0)]
        first = nlargest(
            MAX_MAP_TARGETS, chosen,
            key=lambda row: (row[0] in judged, -has[row[0]] if judged else 0, _weight(row)),
        )  # fmt: skip
        shown = {row[0] for row in first}
        return [row[0] for row in targets if row[0] in shown]

    def samples(self, codes: Mapping[Key, int] | None = None) -> list[list[Any]]:
        """Of each barcode what a lab asks for, those that lack most first, negative controls last.

        Barcode, name, control, reads, bases, targets with a read, and how many targets are
        detected, need more, are not detected, which is None without thresholds; reads on target,
        the groups whose targets are all detected, and how many seconds it takes until those that
        need more have enough, if reads come as fast as since this process began; else None.
        codes: as from ``_codes``, if known.
        """
        sums: dict[str | None, list[int]] = {code: [0, 0, 0, 0] for code in self._sheet.samples}
        for (barcode, target), row in self._barcodes.items():
            totals = sums.setdefault(barcode, [0, 0, 0, 0])
            reads = row[1 + _READS] or 0
            known = reads if target is not None else 0
            parts = reads, row[1 + _BASES] or 0, known > 0, known
            totals[:] = (total + part for total, part in zip(totals, parts, strict=True))
        codes = self._codes() if codes is None else codes
        judged = len(self._judged())
        by_barcode: dict[str | None, dict[str | None, int]] = {barcode: {} for barcode in sums}
        for (barcode, target), code in codes.items():
            by_barcode[barcode][target] = code
        samples = []
        for barcode, (reads, bases, targets, known) in sums.items():
            sample = self._sheet.samples.get(barcode or "")
            name = barcode if sample is None else sample.name
            row = [barcode, name, sample and sample.control, reads, bases, targets]
            own = by_barcode[barcode]
            row += self._counts(barcode, own, reads, judged)
            whole = [group for group, names in self._panel.groups.items()
                     if names and all(own.get(name) == DETECTED for name in names)]  # fmt: skip
            samples.append([*row, known, whole, self._seconds(barcode, own, reads)])
        return sorted(
            samples, key=lambda row: (row[2] == "negative", row[6] or 0, row[3], row[0] or ".")
        )

    def _judged(self) -> set[str | None]:
        """The targets that have a verdict."""
        kmers = {key[0] for key, row in self._targets.items() if row[_KMERS]}
        return kmers & self._watched if self._watched else kmers

    def _codes(self) -> dict[Key, int]:
        """The verdict of each row of a barcode; empty without thresholds."""
        panel, negative = self._panel, self._sheet.negative
        if not panel.limits:
            return {}
        totals: Counter[str | None] = Counter()
        for (barcode, _), row in self._barcodes.items():
            totals[barcode] += row[1 + _READS] or 0
        judged = self._judged()
        codes: dict[Key, int] = {}
        for (barcode, target), row in self._barcodes.items():
            if target in judged:
                own = barcode in negative
                others = [self._barcodes.get((code, target)) for code in negative if not own]
                control = max((other[1 + _READS] for other in others if other), default=0)
                counts = (row[1 + at] for at in (_READS, _MATCHES, _KMERS, _SEEN))
                codes[barcode, target] = int(
                    panel.judge(*counts, total=totals[barcode], control=control, negative=own)
                )
        return codes

    def _counts(
        self, barcode: str | None, codes: Mapping[str | None, int], reads: int, judged: int
    ) -> list[int | None]:
        """How often each verdict was made, in the order of codes; None without thresholds."""
        if not self._panel.limits:
            return [None] * 3
        # most targets have no row in most barcodes: as if none had one
        own = barcode in self._sheet.negative
        none = int(self._panel.judge(0, 0, 1, 0, total=reads, negative=own))
        every = Counter(codes.values())
        every[none] += judged - len(codes)
        return [every[code] for code in (DETECTED, MORE_NEEDED, NOT_DETECTED)]

    def _seconds(
        self, barcode: str | None, codes: Mapping[str | None, int], reads: int
    ) -> float | None:
        since, before = self._first.setdefault(barcode, (self.now, reads))
        wanted = [target for target, code in codes.items() if code == MORE_NEEDED]
        if not wanted or reads <= before or self.now <= since:
            return None
        rows = [self._barcodes[barcode, target] for target in wanted]
        times = max(self._panel.times(*(row[1 + at] for at in (_READS, _MATCHES, _KMERS, _SEEN)))
                    for row in rows)  # fmt: skip
        seconds = (times - 1) * reads * (self.now - since) / (reads - before)
        return seconds if 0 < seconds < _MOST_SECONDS else None

    def _cell(self, barcode: str | None, target: str, codes: Mapping[Key, int]) -> list[Any]:
        row = self._barcodes.get((barcode, target))
        if row is None:
            # none of its k-mers was seen, if it has any
            kmers = self._targets[target,][_KMERS]
            nothing = 0.0 if kmers else None
            return [0, nothing, nothing, 0]
        return [row[2], row[7], row[8], int(codes.get((barcode, target)) == DETECTED)]


def _weight(row: Row) -> tuple[int, int]:
    """Targets with more reads come first, of equals those with more matches."""
    return row[_READS] or 0, row[_MATCHES] or 0


TOPICS = ("read", "targets", "barcodes", "novelty", "status")
"""Of the feed."""

MAX_CURVE = 1024
"""Points of the novelty curve between two replies of control, which has 512 at most."""

Fields = dict[str, Any]


class RunModel:
    """The state of one daemon, of its present stream.

    stale: rows may have been missed, so all are to be asked for. problem: why the daemon does not
    answer, empty if it does. ended: the last state that the feed has announced, ``ended`` or
    ``failed``, empty before.
    """

    def __init__(self, panel: Panel | None = None, sheet: SampleSheet | None = None) -> None:
        self.stale = True
        self._sheet = sheet or SampleSheet()
        self.problem = "the daemon has not been heard yet"
        self._panel = panel or Panel()
        self._status: Fields = {}
        self._replaces = False
        self._begin()

    def _begin(self) -> None:
        """Know nothing of the stream."""
        self.stale = True
        self.ended = ""
        self.history = History()
        self.lengths = Lengths()
        self.producers = Senders()
        self.rows = TargetRows(self._panel, self._sheet)
        self.novelty: list[Sequence[int]] = []
        self._gaps = 0
        self._durations: list[int] = []
        # what has changed since the last tick
        self._new = {"history", "lengths", "producers", "novelty", "rows"}

    # ---- what comes in -------------------------------------------------------------------------

    def message(self, message: messages.Message, now: float) -> None:
        """A message of the feed; now: in seconds."""
        match message:
            case messages.ReadSummaries():
                self.lengths.add(message.length)
                bases = int(message.length.sum())
                self.producers.add(message.origin.producer, message.length.size, bases, now)
                self._new |= {"lengths", "producers"}
            case messages.TallyRows():
                self._tally(message)
            case messages.NewStream():
                self._begin()
            case messages.NewEpoch():
                self.stale = True
                self.ended = ""
                self._durations = []
            case messages.Gap():
                self._gaps += 1
                self.stale = True
            case messages.Status():
                if self._status:
                    self._status["state"] = message.state
                self.ended = message.state if message.state in FINAL else ""

    def _tally(self, message: messages.TallyRows) -> None:
        topic = message.stamp.topic
        if topic == "novelty":
            self._curve_to(message.rows[-1])
            return
        rows = self.rows
        if message.version != rows.version:
            # a frozen dictionary that was replaced: all counts begin anew
            if rows.version is not None and self._frozen:
                rows.clear()
                self.stale = True
            rows.version = message.version
        rows.complete = message.complete
        rows.take(message.rows, by_barcode=topic == "barcodes")
        self._new.add("rows")

    @property
    def _frozen(self) -> bool:
        return bool(self._status.get("dictionary", {}).get("mode") == "frozen")

    def _curve_to(self, row: Sequence[int]) -> None:
        """The curve goes on to this point."""
        if self.novelty and row[1] <= self.novelty[-1][1]:
            return
        if len(self.novelty) > MAX_CURVE:
            self.novelty = self.novelty[::2]
        self.novelty.append(list(row))
        self._new.add("novelty")

    def status(self, status: Fields, now: float) -> None:
        """The reply to ``status``."""
        self.problem = ""
        if self._status.get("stream") not in (None, status["stream"]):
            self._begin()
        self._status = status
        totals, durations = status["totals"], status["durations"]
        self.rows.now = now
        bounds, counts = durations["bounds"], durations["counts"]
        recent = [n - m for n, m in zip(counts, self._durations or counts, strict=True)]
        self._durations = counts
        waiting = status["queue"]["bytes"]
        latency = quantile(0.5, bounds, recent), quantile(0.99, bounds, recent)
        point = Point(round(now, 1), totals["reads"], totals["bases"], waiting, *latency)
        thinned = self.history.thinned
        self._replaces = self.history.add(point)
        if self.history.thinned > thinned:
            self._new.add("history")

    def judged(self, reply: Fields) -> None:
        """The reply to ``panel``: what is enough, and the samples."""
        self._panel = Panel(**reply["panel"])
        self._sheet = SampleSheet.of(reply.get("samples", ()), reply.get("run", ""))
        self.rows.judge(self._panel, self._sheet)

    def all_rows(
        self,
        targets: Sequence[Sequence[Any]] | None,
        barcodes: Sequence[Sequence[Any]] | None,
        novelty: Sequence[Sequence[int]] | None,
    ) -> None:
        """All rows, as control has them; None of what the daemon does not count."""
        for rows, by_barcode in ((targets, False), (barcodes, True)):
            if rows is not None:
                self.rows.replace(rows, by_barcode=by_barcode)
                self._new.add("rows")
        if novelty is not None:
            self.novelty = [list(point) for point in novelty]
            self._new.add("novelty")
        self.stale = False

    # ---- what the page gets --------------------------------------------------------------------

    def everything(self, now: float) -> Fields:
        """All that the page shows."""
        return self._state(now) | {name: self._part(name) for name in _PARTS}

    def tick(self, now: float) -> Fields:
        """The changes since the last tick; ``point``: the last one of the history.

        replaces: it stands in place of the one before.
        """
        fields = self._state(now) | {name: self._part(name) for name in sorted(self._new)}
        if "history" not in self._new and self.history.points:
            fields |= {"point": self.history.points[-1], "replaces": self._replaces}
        self._new = set()
        return fields

    def _state(self, now: float) -> Fields:
        status = {name: self._status[name] for name in _SHOWN if name in self._status}
        return {
            "program": __version__,
            "now": round(now, 1),
            "problem": self.problem,
            "gaps": self._gaps,
            "status": status,
        }

    def _part(self, name: str) -> Any:
        match name:
            case "history":
                return self.history.points
            case "lengths":
                return self.lengths.fields()
            case "producers":
                return self.producers.rows()
            case "novelty":
                return self.novelty
        return self.rows.fields()


_PARTS = ("history", "lengths", "producers", "novelty", "rows")
# of the status
_SHOWN = (
    "state", "epoch", "uptime_seconds", "dictionary", "revision", "queue", "undurable", "stuck",
    "producers", "refused", "durability", "published", "totals", "counted", "durations", "feed",
    "gpus",
)  # fmt: skip
