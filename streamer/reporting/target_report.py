"""The part of ``--report targets`` that a page shows: counts by target, in all or by barcode."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer.matching.target_counts import TARGET_COLUMNS
from streamer.reporting.row_files import ColumnType, Row, RowFile, RowKind

_TEXTS = (ColumnType("barcode", "text", True), ColumnType("target", "text", True))
_COUNTS = (
    ColumnType("reads", "count"), ColumnType("bases", "count"),
    ColumnType("matches", "count", True), ColumnType("kmers", "count", True),
    ColumnType("seen", "count", True),
    ColumnType("breadth", "ratio", True), ColumnType("depth", "ratio", True),
)  # fmt: skip
TARGETS = RowKind("targets", (_TEXTS[1], *_COUNTS))
TARGETS_BY_BARCODE = RowKind("targets", (*_TEXTS, *_COUNTS))

assert TARGETS.header == TARGET_COLUMNS

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
    there is one group, None.
    """

    def __init__(self, *, by_barcode: bool) -> None:
        self.by_barcode = by_barcode
        self.names: list[str] = []
        self.groups: dict[str | None, NDArray[np.int64]] = {}

    @property
    def barcodes(self) -> list[str | None]:
        """Return the barcodes in ascending order, with None as ``.``."""
        return sorted(self.groups, key=lambda label: label or ".")

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
        together = np.sum(parts, axis=0)
        together[3] = parts[0][3]
        together[4] = np.max([part[4] for part in parts], axis=0)
        return together

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
        """The number of reads on no target."""
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
    taking = _Taking(file.fault, by_barcode=file.kind is TARGETS_BY_BARCODE)
    for row in file.rows():
        taking.take(row)
    return taking.report()


class _Taking:
    """Takes the rows of a file one by one."""

    def __init__(self, fault: Callable[..., Exception], *, by_barcode: bool) -> None:
        self._fault = fault
        self._report = TargetReport(by_barcode=by_barcode)
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
        groups, names = self._report.groups, self._report.names
        if self._at == 0:
            if label in groups or (groups and not self._report.by_barcode):
                problem = f"rows after those of all targets{_of(label)}"
                raise self._fault(problem, "barcode" if self._report.by_barcode else "target")
            self._label = label
        elif label != self._label:
            problem = f"another barcode before the row of the unassigned reads{_of(self._label)}"
            raise self._fault(problem, "barcode")
        if groups and target != (expected := [*names, None][self._at]):
            problem = f"'{target or '.'}', expected '{expected or '.'}' as in the barcode before"
            raise self._fault(problem, "target")
        self._check(target, *counts)
        self._cells.extend(count or 0 for count in counts[:5])
        if not groups and target is not None:
            names.append(target)
        self._at += 1
        if target is None:
            cells = np.frombuffer(self._cells, np.int64).reshape(-1, 5)
            groups[label] = np.ascontiguousarray(cells.T)
            self._cells, self._at = array("q"), 0

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
                problem = "a number for the unassigned"
                raise self._fault(problem, "breadth")
            return
        if seen > kmers or seen > matches:
            problem = f"{seen} is more than {min(kmers, matches)} k-mers or matches"
            raise self._fault(problem, "seen")
        for name, value, count in (("breadth", breadth, seen), ("depth", depth, matches)):
            expected = count / kmers if kmers else None
            if (value is None) != (expected is None) or (
                value is not None
                and expected is not None
                and abs(value - expected) > _ROUNDING * max(1, expected * 1e-9)
            ):
                shown = "." if expected is None else f"{expected:.4f}"
                given = "." if value is None else value
                problem = f"{given} does not fit the counts, which give {shown}"
                raise self._fault(problem, name)

    def report(self) -> TargetReport:
        """Return the report, if it is complete."""
        if self._at or (not self._report.by_barcode and not self._report.groups):
            problem = "the row of the unassigned reads (.) is missing: the file is not complete"
            raise self._fault(problem, "target")
        return self._report


def _of(label: str | None) -> str:
    return f" of '{label}'" if label is not None else ""


def rows_of(report: TargetReport, barcodes: Sequence[str | None]) -> Iterator[Row]:
    """Yield the rows of ``--report targets`` for these barcodes."""
    for barcode in barcodes:
        for line in report.lines(barcode):
            known = line.target is not None
            counts = [line.matches, line.kmers, line.seen, line.breadth, line.depth]
            row = [line.target, line.reads, line.bases, *(counts if known else [None] * 5)]
            yield [barcode, *row] if report.by_barcode else row
