"""What a page shows of ``--report reads``: sums, lengths, and how many reads a target has."""

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

    Each length is counted on its own: as many different ones as there can be have at least the
    square of that number, halved, in bases, so a terabase has at most 1.4 million.
    """

    def __init__(self) -> None:
        self.by_length: Counter[int] = Counter()

    @property
    def reads(self) -> int:
        """How many."""
        return self.by_length.total()

    @property
    def bases(self) -> int:
        """Of all of them."""
        return sum(length * count for length, count in self.by_length.items())

    def middle(self, share: float = 0.5) -> int:
        """The least length with this share of the reads at or below it; 0 without reads."""
        wanted, passed = share * self.reads, 0
        for length in sorted(self.by_length):
            passed += self.by_length[length]
            if passed >= wanted:
                return length
        return 0

    @property
    def n50(self) -> int:
        """The greatest length such that reads of it and above have half of the bases."""
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
    """on, off: reads with and without a target. targets: by name, reads and bases whose best
    target it is, in the order of their first read. The sums are over all reads.
    """

    def __init__(self) -> None:
        self.on, self.off = LengthCounts(), LengthCounts()
        self.targets: dict[str, list[int]] = {}
        self.windows = self.matches = self.mismatches = self.skipped = 0

    @property
    def all(self) -> LengthCounts:
        """All reads."""
        both = LengthCounts()
        both.by_length = self.on.by_length + self.off.by_length
        return both

    def add(self, columns: Mapping[str, NDArray[Any]], names: Mapping[int, str]) -> None:
        """Reads as columns of ``--report reads``; names: of the targets, by their numbers."""
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
    """The report in a file; RowError if the counts of a read do not fit each other."""
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
    """name, reads, bases of those with the most reads."""
    ranked = sorted(targets.items(), key=lambda item: -item[1][0])[:most]
    return [(name, reads, bases) for name, (reads, bases) in ranked]
