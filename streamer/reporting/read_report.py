"""The part of ``--report reads`` that a page shows: totals, lengths, and reads by target."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.matching.reports import READ_COLUMNS
from streamer.reporting.row_files import ColumnType, RowFile, RowKind

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
        problem = f"{windows}, but there are {matches} matches and {mismatches} mismatches"
        raise file.fault(problem, "windows")
    problem = f"{length}, too short for {windows} windows and {skipped} skipped ones"
    raise file.fault(problem, "length")


def top(targets: Mapping[str, Sequence[int]], most: int) -> list[tuple[str, int, int]]:
    """Return name, reads, bases of the targets with the most reads."""
    ranked = sorted(targets.items(), key=lambda item: -item[1][0])[:most]
    return [(name, reads, bases) for name, (reads, bases) in ranked]
