"""Files of rows written by ``match --report``, TSV or jsonl, as what a page shows of them.

``RowFile`` reads and checks rows; errors have a position. Of ``--report targets`` a page shows
counts by target, in all or by barcode; of ``reads`` totals, lengths, and reads by target; of
``coverage`` bins of the targets with most matches; of ``novelty`` points of the curve.
"""

from __future__ import annotations

import json
from array import array
from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer.errors import PlacedError
from streamer.matching.novelty import NOVELTY_COLUMNS
from streamer.matching.panel import VERDICTS, Panel
from streamer.matching.reports import READ_COLUMNS
from streamer.matching.target_counts import COVERAGE_COLUMNS, TARGET_COLUMNS
from streamer.sequences.context import label_order
from streamer.sequences.sample_sheet import SAMPLE_COLUMNS, Sample, SampleSheet

Row = list[Any]
"""One value per column: str, int or float, None for null."""


class RowError(PlacedError):
    """An error in a file of rows: file, line (from 1) and, if known, column."""

    def __init__(
        self, problem: str, *, file: str, line: int | None = None, column: str | None = None
    ) -> None:
        self.line, self.column = line, column
        super().__init__(problem, file, {"line": line, "column": column})


class ColumnType(NamedTuple):
    """type: a text, an integer from 0, or a decimal number from 0. null: may be ``.``."""

    name: str
    type: Literal["text", "count", "ratio"]
    null: bool = False


class RowKind(NamedTuple):
    """A report: its name in ``match --report``, and its columns."""

    name: str
    columns: tuple[ColumnType, ...]

    @property
    def header(self) -> tuple[str, ...]:
        """Return the names of its columns."""
        return tuple(column.name for column in self.columns)


_MOST = 1 << 62
_DIGITS = 19  # of a number below it, and one more
_CUT = "the file ends within this line: it is not complete"


class RowFile:
    """The rows of an open file, whose first line identifies their kind.

    name: in messages. on_bytes: called now and then with the bytes read so far. Raises RowError for
    anything but a complete file of one of ``kinds``.
    """

    def __init__(
        self,
        file: BinaryIO,
        name: str,
        kinds: Sequence[RowKind],
        on_bytes: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._name = name
        self._file = file
        self._on_bytes = on_bytes
        self.line = 1
        """The number of the last line read."""
        self.bytes = 0
        """Bytes of text read so far."""
        self.facts: dict[str, str] = {}
        """What made the rows, as ``match --comments`` writes it."""
        self._first = self._next()
        while self._first.startswith(b"## "):
            key, _, value = self._first[3:].decode(errors="replace").strip().partition(": ")
            self.facts[key] = value
            self.line += 1
            self._first = self._next()
        if not self._first.strip():
            raise self.fault("the file is empty: expected a report of streamer match", None)
        self._json = self._first.lstrip().startswith(b"{")
        self.kind = self._kind(kinds)
        counts = [at for at, column in enumerate(self.kind.columns) if column.type == "count"]
        self._counts = slice(counts[0], counts[-1] + 1)
        self._every = range(len(self.kind.columns))
        self._rest = [at for at in self._every if at not in counts]

    def fault(self, problem: str, column: str | None, *, line: int | None = None) -> RowError:
        """Return an error in the last line read, or in another one."""
        return RowError(problem, file=self._name, line=line or self.line, column=column)

    def rows(self) -> Iterator[Row]:
        """Yield the values of each row, in the order of the kind's columns."""
        take = self._of_json if self._json else self._of_tsv
        if self._json:
            yield take(self._first)
        while line := self._next():
            self.line += 1
            yield take(line)

    def _next(self) -> bytes:
        try:
            line = self._file.readline()
        except (OSError, EOFError, ValueError) as error:
            raise RowError(
                f"cannot be read: {str(error).lower() or 'damaged'}", file=self._name
            ) from error
        except Exception as error:  # each compression has its own exceptions
            raise RowError(f"cannot be read: {error}", file=self._name) from error
        self.bytes += len(line)
        if not self.line & 0xFFFF:
            self._on_bytes(self.bytes)
        return line

    def _kind(self, kinds: Sequence[RowKind]) -> RowKind:
        if self._json:
            words = tuple(self._object(self._first))
        else:
            if self._first.startswith(b"#") and not self._first.endswith(b"\n"):
                raise self.fault(_CUT, None)
            text = self._first.decode(errors="replace").rstrip("\r\n")
            words = tuple(text.removeprefix("#").split("\t"))
        for kind in kinds:
            if kind.header == words:
                return kind
        if not self._first.startswith((b"#", b"{")):
            words = ()
        names = ", ".join(dict.fromkeys(kind.name for kind in kinds))
        what = f"columns {' '.join(words)[:200]} are" if words else "the first line is no header"
        end = " of no report that can be shown" if words else ""
        raise self.fault(f"{what}{end}: expected rows of --report {names}", None)

    # ---- TSV -----------------------------------------------------------------------------------

    def _of_tsv(self, line: bytes) -> Row:
        if not line.endswith(b"\n"):
            raise self.fault(_CUT, None)
        try:
            row: Row = line.decode().rstrip("\r\n").split("\t")
        except UnicodeDecodeError:
            raise self._not_text(line) from None
        columns = self.kind.columns
        if len(row) != len(columns):
            some = "another header" if line.startswith(b"#") else f"{len(row)} columns"
            raise self.fault(
                f"{some}, expected the {len(columns)} of --report {self.kind.name}", None
            )
        rest: Sequence[int] = self._every
        # the fast path for nearly all rows: integers converted together
        numbers = row[self._counts]
        digits = "".join(numbers)
        plain = digits.isascii() and digits.isdigit() and all(numbers)
        if plain and max(map(len, numbers)) < _DIGITS:
            row[self._counts] = map(int, numbers)
            rest = self._rest
        for at in rest:
            row[at] = self._cell(row[at], columns[at])
        return row

    def _cell(self, cell: str, column: ColumnType) -> Any:
        name, kind, null = column
        if not cell:
            raise self.fault("it is empty", name)
        if cell == "." and null:
            return None
        if kind == "text":
            return cell
        if cell.isascii():
            if kind == "count" and cell.isdigit() and len(cell) < _DIGITS:
                return int(cell)
            if kind == "ratio" and cell.replace(".", "", 1).isdigit():
                return float(cell)
        raise self._wrong(cell, column)

    def _not_text(self, line: bytes) -> RowError:
        """Return an error for the first cell that is not valid text."""
        name = None
        for cell, column in zip(line.split(b"\t"), self.kind.columns, strict=False):
            try:
                cell.decode()
            except UnicodeDecodeError:
                name = column.name
                break
        return self.fault("it is not UTF-8 text", name)

    # ---- jsonl ---------------------------------------------------------------------------------

    def _object(self, line: bytes) -> dict[str, Any]:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            problem = "it is no JSON object"
            if not line.endswith(b"\n"):
                problem = _CUT
            raise self.fault(problem, None) from None
        if not isinstance(row, dict):
            raise self.fault("it is no JSON object", None)
        return row

    def _of_json(self, line: bytes) -> Row:
        row = self._object(line)
        if tuple(row) != self.kind.header:
            missing = [name for name in self.kind.header if name not in row]
            what = f"'{missing[0]}' is missing" if missing else "other columns"
            raise self.fault(f"{what}, expected those of --report {self.kind.name}", None)
        for value, column in zip(row.values(), self.kind.columns, strict=True):
            if not _fits(value, column):
                raise self._wrong(json.dumps(value), column)
        return list(row.values())

    def _wrong(self, shown: str, column: ColumnType) -> RowError:
        expected = {
            "text": "a text", "count": "a whole number from 0", "ratio": "a number from 0"
        }[column.type]  # fmt: skip
        if column.null:
            expected += " or null"
        return self.fault(f"'{shown[:80]}', expected {expected}", column.name)


def _fits(value: Any, column: ColumnType) -> bool:
    if value is None:
        return column.null
    if column.type == "text":
        return isinstance(value, str) and value != ""
    if isinstance(value, bool):
        return False
    if column.type == "count":
        return isinstance(value, int) and 0 <= value < _MOST
    return isinstance(value, (int, float)) and 0 <= value < float("inf")


COVERAGE = RowKind(
    "coverage",
    (
        ColumnType("target", "text"),
        *(ColumnType(name, "count") for name in COVERAGE_COLUMNS[1:]),
    ),
)
COVERAGE_BY = RowKind("coverage", (ColumnType("barcode", "text", True), *COVERAGE.columns))

DRAWN_TARGETS = 24
DRAWN_BINS = 100


class TargetBins(NamedTuple):
    """Bins along a target: int64[bins] each. name: of the target, and of the barcode if by that."""

    name: tuple[str, ...]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    kmers: NDArray[np.int64]
    seen: NDArray[np.int64]
    matches: NDArray[np.int64]

    @property
    def last(self) -> int:
        """Behind the start of the last window, where a curve ends (ambiguity codes apart)."""
        some = np.flatnonzero(self.kmers)
        return int(self.start[some[-1]] + self.kmers[some[-1]]) if some.size else 0

    def fewer(self, most: int = DRAWN_BINS) -> TargetBins:
        """Return at most so many bins, by merging neighbours."""
        bins = self.start.size
        if bins <= most:
            return self
        firsts = np.arange(most) * bins // most
        sums = (np.add.reduceat(values, firsts) for values in self[3:])
        return TargetBins(self.name, self.start[firsts], self.end[[*firsts[1:] - 1, -1]], *sums)


class CoverageReport:
    """Bins of the ``DRAWN_TARGETS`` targets with the most matches, and totals over all targets.

    Targets without a match are not drawn.

    kmers, seen, matches: of all targets. by_barcode: each target of each barcode counts as one.
    """

    def __init__(self, *, by_barcode: bool = False) -> None:
        self.by_barcode = by_barcode
        self.count = 0
        self.kmers = self.seen = self.matches = 0
        # most matches first; among equals, in file order
        self._best: list[tuple[int, TargetBins]] = []

    def add(self, bins: TargetBins) -> None:
        """Add the next target, in file order."""
        kmers, seen, matches = (int(values.sum()) for values in bins[3:])
        self.kmers, self.seen = self.kmers + kmers, self.seen + seen
        self.matches += matches
        self.count += 1
        if matches:
            insort(self._best, (matches, bins.fewer()), key=lambda entry: -entry[0])
            del self._best[DRAWN_TARGETS:]

    @property
    def drawn(self) -> list[TargetBins]:
        """Return the targets to draw, most matches first."""
        return [bins for _, bins in self._best]

    def add_columns(self, name: tuple[str, ...], columns: Mapping[str, NDArray[np.int64]]) -> None:
        """Add the next target, from columns of ``--report coverage``."""
        self.add(TargetBins(name, *(columns[c] for c in COVERAGE_COLUMNS[1:])))


def read_coverage(file: RowFile) -> CoverageReport:
    """Read the report in a file; raise RowError if its bins are not contiguous."""
    report = CoverageReport(by_barcode=file.kind is COVERAGE_BY)
    name: tuple[str, ...] | None = None
    names: set[tuple[str, ...]] = set()
    cells = array("q")
    end = 0
    for *labels, start, stop, kmers, seen, matches in file.rows():
        target = tuple(label or "." for label in labels[::-1])
        if target != name:
            if target in names:
                raise file.fault(f"'{target[0]}' appears again after other targets", "target")
            if name is not None:
                report.add(_bins(name, cells))
            name, cells, end = target, array("q"), 0
            names.add(target)
        _check(file.fault, start, stop, end, kmers, seen, matches)
        end = stop
        cells.extend((start, stop, kmers, seen, matches))
    if name is not None:
        report.add(_bins(name, cells))
    return report


def _bins(name: tuple[str, ...], cells: array[int]) -> TargetBins:
    return TargetBins(name, *np.frombuffer(cells, np.int64).reshape(-1, 5).T)


def _check(
    fault: Callable[[str, str], Exception],
    start: int,
    stop: int,
    end: int,
    kmers: int,
    seen: int,
    matches: int,
) -> None:
    faults: tuple[tuple[bool, str, Any], ...] = (
        (start != end, "start", f"{start}, expected {end}, where the bin before ends"),
        (stop < start, "end", f"{stop} is before the start, {start}"),
        (kmers > stop - start, "kmers", f"{kmers} in a bin of {stop - start} bases"),
        (seen > kmers, "seen", f"{seen} of {kmers} k-mers"),
        (seen > matches, "seen", f"{seen} with {matches} matches"),
    )
    for wrong, column, problem in faults:
        if wrong:
            raise fault(problem, column)


NOVELTY = RowKind("novelty", tuple(ColumnType(name, "count") for name in NOVELTY_COLUMNS))

MOST_POINTS = 2048


class CurvePoint(NamedTuple):
    """Reads, bases and k-mers so far; new: k-mers since the previous point."""

    reads: int
    bases: int
    kmers: int
    new: int


class NoveltyReport(NamedTuple):
    """A novelty curve. points: ascending; the last one is the end of the stream."""

    points: list[CurvePoint]


def read_novelty(file: RowFile) -> NoveltyReport:
    """Read the report in a file; raise RowError if its points do not increase.

    If there are too many points, every other one is dropped, repeatedly, but never the last.
    """
    points: list[CurvePoint] = []
    last = CurvePoint(0, 0, 0, 0)
    every, count = 1, 0
    for row in file.rows():
        point = CurvePoint(*row)
        for name in ("reads", "bases", "kmers"):
            value, before = getattr(point, name), getattr(last, name)
            if value < before:
                raise file.fault(f"{value} is less than {before} in the row before", name)
        if point.new != point.kmers - last.kmers:
            raise file.fault(
                f"{point.new}, but the k-mers rise by {point.kmers - last.kmers}", "new"
            )
        last = point
        count += 1
        if count % every == 0:
            points.append(point)
        if len(points) >= MOST_POINTS:
            points, every = points[1::2], 2 * every
    if count and (not points or points[-1] is not last):
        points.append(last)
    return NoveltyReport(points)


READS = RowKind(
    "reads",
    (
        ColumnType("read", "text"),
        *(ColumnType(name, "count") for name in READ_COLUMNS[1:-1]),
        ColumnType("best_target", "text", True),
    ),
)

_SUMS = ("windows", "matches", "mismatches", "skipped")


class LengthCounts:
    """Reads by length.

    Each length is counted separately: n distinct lengths take at least n^2/2 bases, so a terabase
    has at most 1.4 million of them.
    """

    def __init__(self) -> None:
        self.by_length: Counter[int] = Counter()

    @property
    def reads(self) -> int:
        """The number of reads."""
        return self.by_length.total()

    @property
    def bases(self) -> int:
        """The number of bases."""
        return sum(length * count for length, count in self.by_length.items())

    def middle(self, share: float = 0.5) -> int:
        """Return the least length with this share of the reads at or below it; 0 without reads."""
        wanted, passed = share * self.reads, 0
        for length in sorted(self.by_length):
            passed += self.by_length[length]
            if passed >= wanted:
                return length
        return 0

    @property
    def n50(self) -> int:
        """Return the greatest length such that reads of at least it have half of the bases."""
        half, passed = self.bases / 2, 0
        for length in sorted(self.by_length, reverse=True):
            passed += length * self.by_length[length]
            if passed >= half:
                return length
        return 0

    @property
    def longest(self) -> int:
        """0 without reads."""
        return max(self.by_length, default=0)


class ReadsReport:
    """Counts of reads.

    on, off: reads with and without a target. targets: by name, the reads with that best target and
    their bases, in the order of their first read. The totals are over all reads.
    """

    def __init__(self) -> None:
        self.on, self.off = LengthCounts(), LengthCounts()
        self.targets: dict[str, list[int]] = {}
        self.windows = self.matches = self.mismatches = self.skipped = 0

    @property
    def all(self) -> LengthCounts:
        """Count all reads."""
        both = LengthCounts()
        both.by_length = self.on.by_length + self.off.by_length
        return both

    def add(self, columns: Mapping[str, NDArray[Any]], names: Mapping[int, str]) -> None:
        """Add reads as columns of ``--report reads``; names: target names by number."""
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + int(columns[name].sum()))
        lengths, best = columns["length"], columns["best_target"]
        for counts, some in ((self.on, lengths[best >= 0]), (self.off, lengths[best < 0])):
            there, times = np.unique(some, return_counts=True)
            counts.by_length.update(dict(zip(there.tolist(), times.tolist(), strict=True)))
        for number in np.unique(best[best >= 0]).tolist():
            chosen = lengths[best == number]
            entry = self.targets.setdefault(names[number], [0, 0])
            entry[0] += chosen.size
            entry[1] += int(chosen.sum())


def read_reads(file: RowFile) -> ReadsReport:
    """Read the report in a file; raise RowError if the counts of a read are inconsistent."""
    report = ReadsReport()
    on, off, targets = report.on.by_length, report.off.by_length, report.targets
    sums = [0, 0, 0, 0]
    for _, length, windows, matches, mismatches, skipped, target in file.rows():
        if windows != matches + mismatches or windows + skipped > length:
            _refuse(file, length, windows, matches, mismatches, skipped)
        sums[0] += windows
        sums[1] += matches
        sums[2] += mismatches
        sums[3] += skipped
        if target is None:
            off[length] += 1
            continue
        on[length] += 1
        entry = targets.get(target)
        if entry is None:
            entry = targets[target] = [0, 0]
        entry[0] += 1
        entry[1] += length
    for name, total in zip(_SUMS, sums, strict=True):
        setattr(report, name, total)
    return report


def _refuse(file: RowFile, length: int, windows: int, *counts: int) -> None:
    matches, mismatches, skipped = counts
    if windows != matches + mismatches:
        raise file.fault(
            f"{windows}, but there are {matches} matches and {mismatches} mismatches", "windows"
        )
    raise file.fault(
        f"{length}, too short for {windows} windows and {skipped} skipped ones", "length"
    )


def top(targets: Mapping[str, Sequence[int]], most: int) -> list[tuple[str, int, int]]:
    """Return name, reads, bases of the targets with the most reads."""
    ranked = sorted(targets.items(), key=lambda item: -item[1][0])[:most]
    return [(name, reads, bases) for name, (reads, bases) in ranked]


_NUMBERS = ("reads", "bases", "matches", "kmers", "seen")
_TEXTS = (ColumnType("barcode", "text", True), ColumnType("target", "text", True))
_COUNTS = (
    ColumnType("reads", "count"), ColumnType("bases", "count"),
    ColumnType("matches", "count", True), ColumnType("kmers", "count", True),
    ColumnType("seen", "count", True),
    ColumnType("breadth", "ratio", True), ColumnType("depth", "ratio", True),
)  # fmt: skip
_OF_SHEET = tuple(ColumnType(name, "text", True) for name in SAMPLE_COLUMNS)
_VERDICT = (ColumnType("verdict", "text", True),)
_GROUP = ColumnType("group", "text", True)
TARGET_KINDS = tuple(
    RowKind("targets", (*first, *_COUNTS, *sheet, *verdict))
    for first, sheets in (((_TEXTS[1],), [()]), ((_GROUP,), [()]), (_TEXTS, [(), _OF_SHEET]))
    for sheet in sheets
    for verdict in ((), _VERDICT)
)
"""Of targets or groups, or by barcode; with a sample sheet, with verdicts."""

assert TARGET_KINDS[0].header == TARGET_COLUMNS

_ROUNDING = 0.00006  # rounding error of four decimals


class TargetLine(NamedTuple):
    """The counts of a target; ``target`` is None for the unassigned reads."""

    target: str | None
    reads: int
    bases: int
    matches: int
    kmers: int
    seen: int

    @property
    def breadth(self) -> float | None:
        """seen / kmers to four decimals; None without k-mers."""
        return round(self.seen / self.kmers, 4) if self.kmers else None

    @property
    def depth(self) -> float | None:
        """matches / kmers to four decimals; None without k-mers."""
        return round(self.matches / self.kmers, 4) if self.kmers else None


class TargetReport:
    """Counts of targets, in file order.

    names: target names. groups: by barcode (None: reads without one), int64[5, targets + 1]: reads,
    bases, matches, kmers, seen; the last column is for unassigned reads. Without ``by_barcode``
    there is one group, None. sheet: what is known of the barcodes. verdicts: by barcode, one for
    each target, None where there is none; empty without a panel.
    """

    def __init__(self, *, by_barcode: bool) -> None:
        self.by_barcode = by_barcode
        self.names: list[str] = []
        self.groups: dict[str | None, NDArray[np.int64]] = {}
        self.sheet = SampleSheet()
        self.panel = Panel()
        self.verdicts: dict[str | None, list[str | None]] = {}

    def attach(self, sheet: SampleSheet | None, panel: Panel | None) -> None:
        """Name the samples, of which each has rows, and judge all targets anew."""
        if sheet is not None and self.by_barcode:
            self.sheet = sheet
            nothing = np.zeros((5, len(self.names) + 1), np.int64)
            nothing[3] = next(iter(self.groups.values()), nothing)[3]
            for barcode in sheet.samples:
                self.groups.setdefault(barcode, nothing)
        if panel is None:
            return
        self.panel = panel
        columns = {code: dict(zip(_NUMBERS, c, strict=True)) for code, c in self.groups.items()}
        negative: list[str | None] = [code for code in self.sheet.negative if code in columns]
        for label, counts in columns.items():
            own = label in negative
            controls = [] if own else [columns[control] for control in negative]
            codes = panel.verdicts(self.names, counts, controls, negative=own)[:-1]
            self.verdicts[label] = [VERDICTS[code] for code in codes.tolist()]

    def having(self, barcode: str | None, *verdicts: str | None) -> list[str]:
        """The targets of a sample with one of these verdicts; without a panel, those with reads."""
        if self.verdicts:
            pairs = zip(self.names, self.verdicts[barcode], strict=True)
            return [name for name, verdict in pairs if verdict in verdicts]
        seen = "detected" in verdicts
        reads = self.groups[barcode][0, :-1].tolist()
        return [name for name, count in zip(self.names, reads, strict=True) if (count > 0) == seen]

    def control(self, barcode: str | None) -> str | None:
        """Which control it is, ``negative`` or ``positive``; None for a sample."""
        return self.sheet.columns(barcode)[2]

    def alarms(self) -> Iterator[str]:
        """Yield what is wrong with the run: samples without reads, controls that are not right."""
        detected = {barcode: self.having(barcode, "detected") for barcode in self.groups}
        reads = {barcode: int(counts[0].sum()) for barcode, counts in self.groups.items()}
        return self.panel.alarms(self.sheet, detected, reads)

    @property
    def barcodes(self) -> list[str | None]:
        """Return the barcodes in ascending order, with None as ``.``."""
        return sorted(self.groups, key=label_order)

    def lines(self, barcode: str | None = None) -> Iterator[TargetLine]:
        """Yield the targets of a barcode, then the unassigned reads."""
        for name, counts in zip([*self.names, None], self.groups[barcode].T.tolist(), strict=True):
            yield TargetLine(name, *counts)

    @property
    def summed(self) -> NDArray[np.int64]:
        """Sum over all barcodes: kmers are those of a target, seen the maximum of any barcode."""
        parts = [*self.groups.values()]
        if not parts:
            return np.zeros((5, len(self.names) + 1), np.int64)
        total = np.sum(parts, axis=0)
        total[3] = parts[0][3]
        total[4] = np.max([part[4] for part in parts], axis=0)
        return total

    @property
    def reads(self) -> int:
        """The number of reads."""
        return sum(int(part[0].sum()) for part in self.groups.values())

    @property
    def bases(self) -> int:
        """The bases of all reads."""
        return sum(int(part[1].sum()) for part in self.groups.values())

    @property
    def unassigned(self) -> int:
        """The number of unassigned reads."""
        return sum(int(part[0, -1]) for part in self.groups.values())

    @property
    def with_reads(self) -> int:
        """The number of targets with assigned reads."""
        return int(np.count_nonzero(self.summed[0, :-1]))

    def ranked(self) -> list[int]:
        """Return target indices: most reads first, then most matches, then in file order."""
        reads, _, matches, *_ = self.summed[:, :-1]
        return np.lexsort((np.arange(reads.size), -matches, -reads)).tolist()


def read_targets(file: RowFile) -> TargetReport:
    """Read the report in a file; RowError if its rows do not form whole targets and barcodes."""
    taking = _Taking(file.fault, file.kind.header)
    for row in file.rows():
        taking.take(row)
    return taking.report()


class _Taking:
    """Takes the rows of a file one by one."""

    def __init__(self, fault: Callable[..., Exception], header: Sequence[str]) -> None:
        self._fault = fault
        self._judged, self._on_sheet = "verdict" in header, "control" in header
        self._report = TargetReport(by_barcode=header[0] == "barcode")
        self._samples: dict[str, Sample] = {}
        self._label: str | None = None
        # of the current barcode
        self._cells = array("q")
        self._at = 0

    def take(self, row: Row) -> None:
        label, (target, *counts) = None, row
        if self._report.by_barcode:
            label, target, *counts = row
        if target is None and counts[2] is not None:
            # unassigned reads have no matches, so this is a record named "."
            target = "."
        more, counts = counts[len(_COUNTS) :], counts[: len(_COUNTS)]
        groups, names = self._report.groups, self._report.names
        if self._at == 0:
            if label in groups or (groups and not self._report.by_barcode):
                raise self._fault(
                    f"rows after those of all targets{_of(label)}",
                    "barcode" if self._report.by_barcode else "target",
                )
            self._label = label
        elif label != self._label:
            raise self._fault(
                f"another barcode before the row of the unassigned reads{_of(self._label)}",
                "barcode",
            )
        if groups and target != (expected := [*names, None][self._at]):
            raise self._fault(
                f"'{target or '.'}', expected '{expected or '.'}' as in the barcode before",
                "target",
            )
        self._check(target, *counts)
        self._take_more(label, target, more)
        self._cells.extend(count or 0 for count in counts[:5])
        if not groups and target is not None:
            names.append(target)
        self._at += 1
        if target is None:
            cells = np.frombuffer(self._cells, np.int64).reshape(-1, 5)
            groups[label] = np.ascontiguousarray(cells.T)
            self._cells, self._at = array("q"), 0

    def _take_more(self, label: str | None, target: str | None, more: Row) -> None:
        """Take the columns of a sample sheet and the verdict."""
        if self._judged:
            verdict = more.pop()
            if verdict not in VERDICTS:
                known = ", ".join(filter(None, VERDICTS))
                raise self._fault(f"'{verdict}', expected {known}", "verdict")
            if target is not None:
                self._report.verdicts.setdefault(label, []).append(verdict)
        if self._on_sheet and label is not None and any(more):
            if more[2] not in (None, "negative", "positive"):
                raise self._fault(f"'{more[2]}', expected negative or positive", "control")
            self._samples.setdefault(label, Sample(label, *more))

    def _check(
        self, target: str | None, reads: int, bases: int, matches: int | None,
        kmers: int | None, seen: int | None, breadth: float | None, depth: float | None,
    ) -> None:  # fmt: skip
        counts = {"matches": matches, "kmers": kmers, "seen": seen}
        for name, count in counts.items():
            if (count is None) != (target is None):
                what = "null in the row of a target" if target else "a number for the unassigned"
                raise self._fault(what, name)
        if kmers is None or seen is None or matches is None:
            if breadth is not None or depth is not None:
                raise self._fault("a number for the unassigned", "breadth")
            return
        if seen > kmers or seen > matches:
            raise self._fault(
                f"{seen} is more than {min(kmers, matches)} k-mers or matches", "seen"
            )
        for name, value, count in (("breadth", breadth, seen), ("depth", depth, matches)):
            expected = count / kmers if kmers else None
            if (value is None) != (expected is None) or (
                value is not None
                and expected is not None
                and abs(value - expected) > _ROUNDING * max(1, expected * 1e-9)
            ):
                shown = "." if expected is None else f"{expected:.4f}"
                text = "." if value is None else value
                raise self._fault(f"{text} does not fit the counts, which give {shown}", name)

    def report(self) -> TargetReport:
        """Return the report, if it is complete."""
        self._report.sheet = SampleSheet(self._samples)
        if self._at or (not self._report.by_barcode and not self._report.groups):
            raise self._fault(
                "the row of the unassigned reads (.) is missing: the file is not complete", "target"
            )
        return self._report


def _of(label: str | None) -> str:
    return f" of '{label}'" if label is not None else ""
