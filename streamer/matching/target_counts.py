"""How much of each target was found (reads, windows, distinct k-mers), and where in the target.

What a filter read and passed: reads and bases, by target and by barcode.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer.dictionary.index import Index, numbers_of_targets
from streamer.dictionary.target_sets import TargetSets
from streamer.dictionary.targets import Dictionary
from streamer.matching import target_kernels
from streamer.matching.matcher import StreamMatcher
from streamer.matching.record_runs import Runs, runs_in_text
from streamer.matching.reports import Assignment, Columns
from streamer.matching.result import BatchResult
from streamer.matching.target_kernels import count_filtered
from streamer.sequences.context import LabelColumn, label_order
from trie.windows import NO_SET

TARGET_COLUMNS = ("target", "reads", "bases", "matches", "kmers", "seen", "breadth", "depth")
COVERAGE_COLUMNS = ("target", "start", "end", "kmers", "seen", "matches")

_ROWS_AT_ONCE = 1 << 16
_MOST_IN_32_BITS = (1 << 31) - 1

_NO_BITS = np.zeros(0, np.uint64)
_NO_COUNTS = np.zeros(0, np.int64)


class _Group:
    """The counts of one group of reads: reads and bases by target, windows by set, k-mers seen."""

    def __init__(self, targets: TargetSets, places: int) -> None:
        self.reads, self.bases = np.zeros((2, len(targets.names) + 1), np.int64)
        self.totals = np.zeros(len(targets), np.int64)
        self.seen = np.zeros(-(-places // 64), np.uint64)


class TargetCounts:
    """Counts the matches of batches by target; ``matcher`` must have the option ``counted``.

    Takes a bit per base of the records and eight bytes per target set, for each group of reads.
    regrouped: the same records with other targets, which are counted instead.
    """

    def __init__(
        self, matcher: StreamMatcher, rule: Assignment | None = None,
        regrouped: Dictionary | None = None,
    ) -> None:  # fmt: skip
        self._rule = rule or Assignment()
        self._regrouped = regrouped is not None
        counted = regrouped or matcher.dictionary
        self.targets: TargetSets = counted.targets
        """The targets that have rows."""
        self._index = counted.index
        self._groups: dict[str | None, _Group] = {}
        self._adding = threading.Lock()

    def add(self, result: BatchResult, groups: LabelColumn | None = None) -> None:
        """Count the reads of a batch, each in its group, or in None without ``groups``.

        Thread-safe.
        """
        if self._regrouped:
            places = np.ascontiguousarray(result.runs[:, :4])
            result = replace(result, runs=runs_in_text(self._index, [places]))
        assigned = self._rule.targets_of(result, self.targets)
        for label, reads, runs in _by_label(result, groups):
            self._add(result, assigned, reads, runs, label)

    def _add(
        self,
        result: BatchResult,
        assigned: NDArray[np.int32],
        chosen: NDArray[np.int64],
        runs: Runs,
        label: str | None,
    ) -> None:
        with self._adding:
            group = self._groups.get(label)
            if group is None:
                group = self._groups[label] = self._none()
            offsets = result.batch.offsets
            target_kernels.count_reads(assigned, offsets, chosen, group.reads, group.bases)
        _count(runs, self._index, group.seen, _NO_COUNTS, group.totals)

    @property
    def groups(self) -> list[str | None]:
        """The groups of the reads so far, None for reads without one."""
        return [*self._groups]

    def reads(self) -> Iterator[tuple[str | None, str | None, int]]:
        """Yield group, target (None: no target) and how many reads are assigned to it, if any."""
        names = [*self.targets.names, None]
        for label, group in [*self._groups.items()]:
            numbers = np.flatnonzero(group.reads)
            counts = zip(numbers.tolist(), group.reads[numbers].tolist(), strict=True)
            yield from ((label, names[at], count) for at, count in counts)

    def columns(self, group: str | None = None) -> Columns:
        """Return a row per target in file order, and one for the unassigned reads.

        Columns: target (index, -1 in the last row), reads, bases, matches, kmers, seen: int64. In
        the last row all but reads and bases are 0.
        """
        return self._columns(self._groups.get(group) or self._none())

    def union(self) -> Columns:
        """Like ``columns``, for all groups together."""
        union = self._none()
        for group in self._groups.values():
            for name in ("reads", "bases", "totals"):
                getattr(union, name)[:] += getattr(group, name)
            union.seen |= group.seen
        return self._columns(union)

    def _none(self) -> _Group:
        return _Group(self.targets, self._index.size)

    def _columns(self, counted: _Group) -> Columns:
        targets, index = self.targets, self._index
        seen = np.zeros(len(targets), np.int64)
        if len(seen):
            target_kernels.seen_by_record(
                counted.seen, index.starts, index.record_sets, index.shares.shared, seen
            )
        return {
            "target": np.append(np.arange(len(targets.names)), -1),
            "reads": counted.reads,
            "bases": counted.bases,
            "matches": _by_target(counted.totals, targets),
            "kmers": np.append(index.shares.kmers, 0),
            "seen": _by_target(seen, targets),
        }


def _by_label(
    result: BatchResult, groups: LabelColumn | None
) -> Iterator[tuple[str | None, NDArray[np.int64], Runs]]:
    """Yield the labels of a batch, each with its reads and their runs; None without ``groups``."""
    if groups is None:
        yield None, np.arange(len(result.batch)), result.runs
        return
    present, of_read = np.unique(groups.index, return_inverse=True)
    of_run = of_read[np.searchsorted(result.batch.offsets, result.runs[:, 0], side="right") - 1]
    for at, index in enumerate(present.tolist()):
        label = None if index < 0 else groups.labels[index]
        yield label, np.flatnonzero(of_read == at), result.runs[of_run == at]


class CoverageByLabel:
    """Counts coverage for each label of the reads, such as barcodes; thread-safe.

    counts: by label; None: reads without a label, or all reads if ``add`` is given no groups.
    """

    def __init__(self, matcher: StreamMatcher) -> None:
        self._matcher = matcher
        self._adding = threading.Lock()
        self.counts: dict[str | None, CoverageCounts] = {}

    def add(self, result: BatchResult, groups: LabelColumn | None = None) -> None:
        """Count the windows of a batch."""
        for label, _, runs in _by_label(result, groups):
            self.of(label).add_runs(runs)

    def of(self, label: str | None, *, keep: bool = True) -> CoverageCounts:
        """The counts of a label; if there are none yet, zeros, to be counted on if ``keep``."""
        with self._adding:
            counts = self.counts.get(label) or CoverageCounts(self._matcher)
            if keep:
                self.counts[label] = counts
            return counts


class CoverageCounts:
    """Counts how often each k-mer of the targets' records was matched, by its positions there.

    Takes four bytes per base of the records, and eight more once there are 2 G windows.
    """

    def __init__(self, matcher: StreamMatcher) -> None:
        self._index = matcher.dictionary.index
        # windows that would not fit into the first array are counted in a second one
        self._changes: list[NDArray[Any]] = [np.zeros(self._index.size + 1, np.int32)]
        self._windows = 0
        self._adding = threading.Lock()

    def add(self, result: BatchResult) -> None:
        """Count the windows of the next batch; thread-safe."""
        self.add_runs(result.runs)

    def add_runs(self, runs: Runs) -> None:
        """Count the windows of some runs of a batch; thread-safe."""
        with self._adding:
            self._windows += int((runs[:, 1] - runs[:, 0]).sum())
            if self._windows > _MOST_IN_32_BITS and len(self._changes) == 1:
                self._changes.append(np.zeros(self._index.size + 1, np.int64))
            changes = self._changes[-1]
        _count(runs, self._index, _NO_BITS, changes, _NO_COUNTS)

    def columns(self, bins: int) -> Iterator[Columns]:
        """Yield ``bins`` rows per target, each of equally many bases (the first ones one more).

        Columns: target (index), start, end, kmers, seen, matches: int64. Each item has a bounded
        number of rows.
        """
        counts, targets = self._counts(), len(self._index.names)
        step = max(1, _ROWS_AT_ONCE // bins)
        for first in range(0, targets, step):
            yield self._rows(counts, first, min(first + step, targets), bins)

    def of_target(self, target: int, bins: int, others: Iterable[CoverageCounts] = ()) -> Columns:
        """Return the rows of one target (index), with what others have counted."""
        counts = sum((other._counts() for other in others), self._counts())
        return self._rows(counts, target, target + 1, bins)

    def _counts(self) -> NDArray[Any]:
        first, *further = (np.cumsum(each, dtype=each.dtype) for each in self._changes)
        return further[0] + first if further else first

    def _rows(self, counts: NDArray[Any], first: int, stop: int, bins: int) -> Columns:
        rows = np.empty((len(COVERAGE_COLUMNS), (stop - first) * bins), np.int64)
        numbers, offsets = numbers_of_targets(self._index, first, stop)
        target_kernels.cover(numbers, offsets, counts, bins, tuple(rows))
        rows[0] += first
        return dict(zip(COVERAGE_COLUMNS, rows, strict=True))


def numbers_of(result: BatchResult, index: Index) -> NDArray[np.uint32]:
    """uint32[symbols]: the number of each matching window's k-mer, NO_SET elsewhere.

    Requires a matcher with the option ``counted``.
    """
    numbers = np.full(result.batch.symbols, NO_SET, np.uint32)
    target_kernels.first_places(result.runs, *_repeats(index), numbers)
    return numbers


def _count(runs: Runs, index: Index, *counters: NDArray[Any]) -> None:
    if len(runs):
        target_kernels.count_runs(runs, *_repeats(index), *counters)


def _repeats(index: Index) -> tuple[NDArray[Any], ...]:
    return index.shares.repeats, index.shares.steps, index.shares.near_repeats


def _by_target(by_set: NDArray[np.int64], targets: TargetSets) -> NDArray[np.int64]:
    """Sum over the sets that contain each target, and append the 0 of the last row."""
    counts = np.zeros(len(targets.names) + 1, np.int64)
    np.add.at(counts, targets.members, np.repeat(by_set, np.diff(targets.starts)))
    return counts


_COUNTS = ("reads_in", "bases_in", "reads_out", "bases_out")


class Filtered(NamedTuple):
    """The counts of reads, in and out.

    assigned: target indices, -1 for none. let_out: whether they passed. offsets: as in a batch.
    """

    assigned: NDArray[np.int32]
    let_out: NDArray[np.bool_]
    offsets: NDArray[np.int64]
    barcodes: LabelColumn | None


class FilterCounts:
    """Counts the reads and bases read and passed."""

    def __init__(self, targets: Sequence[str]) -> None:
        self._targets = targets
        # by target; the last row is for unassigned reads
        self._by_target = np.zeros((len(targets) + 1, len(_COUNTS)), np.int64)
        self._by_barcode: dict[str | None, NDArray[np.int64]] = {}

    def add(self, reads: Filtered) -> None:
        """Count more reads, also by barcode if these are known."""
        count_filtered(reads.assigned, reads.offsets, reads.let_out, self._by_target)
        if reads.barcodes is None:
            return
        labels = [*reads.barcodes.labels, None]
        counts = np.zeros((len(labels), len(_COUNTS)), np.int64)
        count_filtered(reads.barcodes.index, reads.offsets, reads.let_out, counts)
        for label, sums in zip(labels, counts, strict=True):
            if sums[0]:
                known = self._by_barcode.setdefault(label, np.zeros_like(sums))
                known += sums

    def merge(self, others: FilterCounts) -> None:
        """Add the counts of other reads."""
        self._by_target += others._by_target
        for label, sums in others._by_barcode.items():
            known = self._by_barcode.setdefault(label, np.zeros_like(sums))
            known += sums

    def __str__(self) -> str:
        totals = self.totals
        return (
            f"{totals['reads_out']:,} of {totals['reads_in']:,} reads and "
            f"{totals['bases_out']:,} of {totals['bases_in']:,} bases written"
        )

    @property
    def totals(self) -> dict[str, int]:
        """Return the counts of all reads."""
        return dict(zip(_COUNTS, self._by_target.sum(axis=0).tolist(), strict=True))

    def summary(self) -> dict[str, Any]:
        """Return for JSON: all reads, each target in file order, then null, and each barcode."""
        barcodes = sorted(self._by_barcode.items(), key=lambda item: label_order(item[0]))
        return {
            **self.totals,
            "targets": _rows("target", [*self._targets, None], self._by_target),
            "barcodes": _rows("barcode", *zip(*barcodes, strict=True)) if barcodes else [],
        }


def _rows(key: str, names: Sequence[str | None], counts: Any) -> list[dict[str, Any]]:
    return [
        {key: name} | dict(zip(_COUNTS, row.tolist(), strict=True))
        for name, row in zip(names, counts, strict=True)
    ]
