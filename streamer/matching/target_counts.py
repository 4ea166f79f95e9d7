"""How much of each target was found (reads, windows, distinct k-mers), and where in the target.

What a filter read and passed: reads and bases, by target and by barcode.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer.dictionary.index import numbers_of_targets
from streamer.dictionary.target_sets import TargetSets
from streamer.matching import target_kernels
from streamer.matching.matcher import StreamMatcher
from streamer.matching.reports import Assignment, Columns
from streamer.matching.result import BatchResult, grouped
from streamer.matching.target_kernels import count_filtered
from streamer.matching.window_labels import WindowLabels
from streamer.sequences.context import LabelColumn
from trie.cpu.threads import free_threads, run_each, split_range, usable_cores
from trie.windows import NO_SET

TARGET_COLUMNS = ("target", "reads", "bases", "matches", "kmers", "seen", "breadth", "depth")
COVERAGE_COLUMNS = ("target", "start", "end", "kmers", "seen", "matches")

_PER_THREAD = 1 << 20  # symbols worth another thread
_ROWS_AT_ONCE = 1 << 16
_PARALLEL_FROM = 1 << 16  # k-mers; with fewer, threads would contend for few counters

_NO_BITS = np.zeros(0, np.uint64)
_NO_COUNTS = np.zeros(0, np.int64)


class _Group:
    """The counts of one group of reads: reads and bases by target, windows by set, k-mers seen."""

    def __init__(self, targets: TargetSets, kmers: int) -> None:
        self.reads, self.bases = np.zeros((2, len(targets.names) + 1), np.int64)
        self.totals = np.zeros(len(targets), np.int64)
        self.seen = np.zeros(-(-kmers // 64), np.uint64)


class TargetCounts:
    """Counts the matches of batches by target; ``matcher`` must have the option ``counted``.

    Takes a bit per distinct k-mer and eight bytes per target set, for each group of reads.
    """

    def __init__(self, matcher: StreamMatcher, rule: Assignment | None = None) -> None:
        self._rule = rule or Assignment()
        self._dictionary = matcher.dictionary
        self._labels = matcher.labels
        self._threads = matcher.spec.threads or usable_cores()
        self._groups: dict[str | None, _Group] = {}
        self._adding = threading.Lock()

    @property
    def targets(self) -> TargetSets:
        """The targets that have rows."""
        return self._dictionary.targets

    def add(self, result: BatchResult, groups: LabelColumn | None = None) -> None:
        """Count the reads of a batch, each in its group, or in None without ``groups``.

        Thread-safe.
        """
        assigned = self._rule.targets_of(result, self.targets)
        if groups is None:
            self._add(result, assigned, np.arange(len(result.batch)), result.runs, None)
            return
        present, of_read = np.unique(groups.index, return_inverse=True)
        runs = _runs_by_group(result, of_read, present.size)
        for at, index in enumerate(present.tolist()):
            label = None if index < 0 else groups.labels[index]
            self._add(result, assigned, np.flatnonzero(of_read == at), runs[at], label)

    def _add(
        self,
        result: BatchResult,
        assigned: NDArray[np.int32],
        chosen: NDArray[np.int64],
        runs: NDArray[np.int64] | None,
        label: str | None,
    ) -> None:
        with self._adding:
            group = self._groups.get(label)
            if group is None:
                group = self._groups[label] = self._none()
            offsets = result.batch.offsets
            target_kernels.count_reads(assigned, offsets, chosen, group.reads, group.bases)
        counters = group.seen, _NO_COUNTS, group.totals
        _count(result, self._labels, chosen, runs, counters, self._threads)

    @property
    def groups(self) -> list[str | None]:
        """The groups of the reads so far, None for reads without one."""
        return [*self._groups]

    def reads(self) -> Iterator[tuple[str | None, str | None, int]]:
        """Yield group, target (None: no target) and how many reads are assigned to it, if any."""
        names = [*self.targets.names, None]
        for label, group in [*self._groups.items()]:
            found = np.flatnonzero(group.reads)
            counts = zip(found.tolist(), group.reads[found].tolist(), strict=True)
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
        index = self._labels.index
        return _Group(self.targets, self._dictionary.kmers if index is None else index.size)

    def _columns(self, counted: _Group) -> Columns:
        targets = self.targets
        seen = np.zeros(len(targets), np.int64)
        if (index := self._labels.index) is not None:
            shared = index.shares.shared
            target_kernels.seen_by_record(
                counted.seen, index.starts, index.record_sets, shared, seen
            )
        else:
            target_kernels.seen_by_set(counted.seen, self._labels.set_of, seen)
        return {
            "target": np.append(np.arange(len(targets.names)), -1),
            "reads": counted.reads,
            "bases": counted.bases,
            "matches": _by_target(counted.totals, targets),
            "kmers": self._kmers,
            "seen": _by_target(seen, targets),
        }

    @cached_property
    def _kmers(self) -> NDArray[np.int64]:
        """Count the k-mers of each target."""
        if (index := self._labels.index) is not None:
            return np.append(index.shares.kmers, 0)
        counts = np.zeros(len(self.targets), np.int64)
        target_kernels.count_sets(self._dictionary.sets, counts)
        return _by_target(counts, self.targets)


class CoverageCounts:
    """Counts how often each k-mer of the targets' records was matched, by its positions there.

    Takes eight bytes per distinct k-mer and four per symbol of the records, which are required.
    """

    def __init__(self, matcher: StreamMatcher) -> None:
        self._labels = matcher.labels
        self._threads = matcher.spec.threads or usable_cores()
        index = self._labels.index
        self._records = None if index is not None else matcher.dictionary.records
        numbers = matcher.dictionary.kmers if index is None else index.size
        self._changes = np.zeros(numbers + 1, np.int64)

    def add(self, result: BatchResult) -> None:
        """Count the windows of the next batch."""
        chosen = np.arange(len(result.batch))
        counters = _NO_BITS, self._changes, _NO_COUNTS
        _count(result, self._labels, chosen, result.runs, counters, self._threads)

    def columns(self, bins: int) -> Iterator[Columns]:
        """Yield ``bins`` rows per target, each of equally many bases (the first ones one more).

        Columns: target (index), start, end, kmers, seen, matches: int64. Each item has a bounded
        number of rows.
        """
        if not self.placed:
            return
        counts = np.cumsum(self._changes)
        targets = len(self._labels.dictionary.targets.names)
        step = max(1, _ROWS_AT_ONCE // bins)
        for first in range(0, targets, step):
            yield self._rows(counts, first, min(first + step, targets), bins)

    @property
    def placed(self) -> bool:
        """Whether the positions of the k-mers are known; without them there are no rows."""
        if self._labels.index is not None:
            return True
        return self._records is not None and self._labels.numbers is not None

    def of_target(self, target: int, bins: int) -> Columns:
        """Return the rows of one target (index); requires ``placed``."""
        return self._rows(np.cumsum(self._changes), target, target + 1, bins)

    def _rows(self, counts: NDArray[np.int64], first: int, stop: int, bins: int) -> Columns:
        rows = np.empty((len(COVERAGE_COLUMNS), (stop - first) * bins), np.int64)
        if (index := self._labels.index) is not None:
            numbers, offsets = numbers_of_targets(index, first, stop)
            target_kernels.cover(numbers, offsets, counts, 0, stop - first, bins, tuple(rows))
            rows[0] += first
            return dict(zip(COVERAGE_COLUMNS, rows, strict=True))
        assert self._records is not None
        assert self._labels.numbers is not None
        places = self._labels.numbers.at, self._records.offsets, counts
        target_kernels.cover(*places, first, stop, bins, tuple(rows))
        return dict(zip(COVERAGE_COLUMNS, rows, strict=True))


def numbers_of(result: BatchResult, labels: WindowLabels) -> NDArray[np.uint32]:
    """uint32[symbols]: the number of each matching window's k-mer, NO_SET elsewhere.

    Requires a matcher with the option ``counted``.
    """
    if result.numbers is not None:
        return result.numbers
    numbers = np.full(result.batch.bases.size, NO_SET, np.uint32)
    if result.runs is not None and labels.index is not None:
        shares = labels.index.shares
        target_kernels.first_places(result.runs, shares.repeats, shares.steps, numbers)
    return numbers


def _runs_by_group(
    result: BatchResult, of_read: NDArray[np.int64], groups: int
) -> Sequence[NDArray[np.int64] | None]:
    """Distribute the runs of a batch to the groups of its reads; None for each without runs."""
    if result.runs is None:
        return [None] * groups
    reads = np.searchsorted(result.batch.offsets, result.runs[:, 0], side="right") - 1
    return grouped(result.runs, of_read[reads], groups)


def _count(
    result: BatchResult,
    labels: WindowLabels,
    chosen: NDArray[np.int64],
    runs: NDArray[np.int64] | None,
    counters: tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.int64]],
    threads: int,
) -> None:
    """Count the windows of the reads ``chosen``, which have these runs, in ``target_kernels``."""
    sets = np.zeros(0, np.uint32) if result.sets is None else result.sets
    if runs is not None and labels.index is not None:
        shares = labels.index.shares
        target_kernels.count_places(
            runs, shares.repeats, shares.steps, sets, result.only_set, *counters
        )
        return
    if result.numbers is None:
        return
    seen, changes, totals = counters
    offsets = result.batch.offsets
    known = result.numbers, sets, result.only_set, offsets, result.k
    count = partial(target_kernels.count_windows, *known)
    threads = free_threads(min(threads, 1 + result.batch.symbols // _PER_THREAD))
    if threads == 1 or max(changes.size, 64 * seen.size) < _PARALLEL_FROM:
        count(chosen, seen, changes, totals)
        return
    ends = np.cumsum(result.batch.lengths[chosen])
    symbols = int(ends[-1]) if ends.size else 0
    cuts = [0, *np.searchsorted(ends, [stop for _, stop in split_range(0, symbols, threads)])]
    cuts[-1] = chosen.size
    parts = [chosen[a:b] for a, b in zip(cuts, cuts[1:], strict=False)]
    run_each(count, [(part, seen, changes, totals) for part in parts], threads)


def _by_target(by_set: NDArray[np.int64], targets: TargetSets) -> NDArray[np.int64]:
    """Sum over the sets that contain each target, and append the 0 of the last row."""
    counts = np.zeros(len(targets.names) + 1, np.int64)
    np.add.at(counts, targets.members, np.repeat(by_set, np.diff(targets.starts)))
    return counts


_COUNTS = ("reads_in", "bases_in", "reads_out", "bases_out")


class Filtered(NamedTuple):
    """What became of reads.

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

    @property
    def totals(self) -> dict[str, int]:
        """Return the counts of all reads."""
        return dict(zip(_COUNTS, self._by_target.sum(axis=0).tolist(), strict=True))

    def summary(self) -> dict[str, Any]:
        """Return for JSON: all reads, each target in file order, then null, and each barcode."""
        barcodes = sorted(self._by_barcode.items(), key=lambda one: one[0] or ".")
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
