"""The part of ``--report coverage`` that a page shows: bins of the targets with most matches."""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer.matching.target_counts import COVERAGE_COLUMNS
from streamer.reporting.row_files import ColumnType, RowFile, RowKind

COVERAGE = RowKind(
    "coverage",
    (
        ColumnType("target", "text"),
        *(ColumnType(name, "count") for name in COVERAGE_COLUMNS[1:]),
    ),
)

DRAWN_TARGETS = 24
DRAWN_BINS = 100


class TargetBins(NamedTuple):
    """Bins along a target: int64[bins] each."""

    name: str
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    kmers: NDArray[np.int64]
    seen: NDArray[np.int64]
    matches: NDArray[np.int64]

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

    kmers, seen, matches: of all targets.
    """

    def __init__(self) -> None:
        self.count = 0
        self.kmers = self.seen = self.matches = 0
        # a heap: fewest matches first; among equals, the last in file order
        self._best: list[tuple[int, int, TargetBins]] = []

    def add(self, bins: TargetBins) -> None:
        """Add the next target, in file order."""
        kmers, seen, matches = (int(values.sum()) for values in bins[3:])
        self.kmers, self.seen = self.kmers + kmers, self.seen + seen
        self.matches += matches
        entry = (matches, -self.count, bins.fewer())
        self.count += 1
        if not matches:
            return
        if len(self._best) < DRAWN_TARGETS:
            heapq.heappush(self._best, entry)
        elif entry[:2] > self._best[0][:2]:
            heapq.heapreplace(self._best, entry)

    @property
    def drawn(self) -> list[TargetBins]:
        """Return the targets to draw, most matches first."""
        return [bins for *_, bins in sorted(self._best, key=lambda e: e[:2], reverse=True)]

    def add_columns(self, name: str, columns: Mapping[str, NDArray[np.int64]]) -> None:
        """Add the next target, from columns of ``--report coverage``."""
        self.add(TargetBins(name, *(columns[c] for c in COVERAGE_COLUMNS[1:])))


def read_coverage(file: RowFile) -> CoverageReport:
    """Read the report in a file; raise RowError if its bins are not contiguous."""
    report = CoverageReport()
    name: str | None = None
    names: set[str] = set()
    cells = array("q")
    end = 0
    for target, start, stop, kmers, seen, matches in file.rows():
        if target != name:
            if target in names:
                problem = f"'{target}' appears again after other targets"
                raise file.fault(problem, "target")
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


def _bins(name: str, cells: array[int]) -> TargetBins:
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
