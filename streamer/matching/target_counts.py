"""How much of each target was found: reads, windows, distinct k-mers; and where in the target."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from streamer.dictionary.target_sets import TargetSets
from streamer.matching import target_kernels
from streamer.matching.assignment import Assignment
from streamer.matching.matcher import Matcher
from streamer.matching.reports import Columns
from streamer.matching.result import BatchResult
from trie.cpu.threads import run_each, split_range, usable_cores
from trie.windows import NO_SET

TARGET_COLUMNS = ("target", "reads", "bases", "matches", "kmers", "seen", "breadth", "depth")
COVERAGE_COLUMNS = ("target", "start", "end", "kmers", "seen", "matches")

_PER_THREAD = 1 << 20  # symbols that are worth a thread
_ROWS_AT_ONCE = 1 << 16
_PARALLEL_FROM = 1 << 16  # k-mers: threads would wait for each other's few counters

_NO_BITS = np.zeros(0, np.uint64)
_NO_COUNTS = np.zeros(0, np.int64)


class TargetCounts:
    """Counts what batches matched, by target; ``matcher`` has the option ``counted``.

    A bit a distinct k-mer, and eight bytes a target set.
    """

    def __init__(self, matcher: Matcher, rule: Assignment | None = None) -> None:
        self._rule = rule or Assignment()
        self._dictionary = matcher.dictionary
        self._numbers = matcher.labels.numbers
        self._threads = matcher.spec.threads or usable_cores()
        targets = self.targets
        self._reads, self._bases = np.zeros((2, len(targets.names) + 1), np.int64)
        self._totals = np.zeros(len(targets), np.int64)
        self._seen = np.zeros(-(-self._dictionary.codes.size // 64), np.uint64)

    @property
    def targets(self) -> TargetSets:
        """Those that rows are of."""
        return self._dictionary.targets

    def add(self, result: BatchResult) -> None:
        """Count the reads of the next batch."""
        assigned = self._rule.targets_of(result, self.targets)
        chosen = np.arange(len(result.batch))
        offsets = result.batch.offsets
        target_kernels.count_reads(assigned, offsets, chosen, self._reads, self._bases)
        _count(result, chosen, self._seen, _NO_COUNTS, self._totals, self._threads)

    def columns(self) -> Columns:
        """A row a target in file order, and one for the reads that are assigned to none.

        target (index, -1 in the last row), reads, bases, matches, kmers, seen: int64; 0 in the last
        row but for reads and bases.
        """
        targets, sets = self.targets, self._dictionary.sets
        known = np.bincount(sets[sets != NO_SET], minlength=len(targets))
        seen = np.zeros(len(targets), np.int64)
        if self._numbers is not None:
            set_of = np.empty_like(sets)
            set_of[self._numbers.of_codes] = sets
            target_kernels.seen_by_set(self._seen, set_of, seen)
        counts = {
            name: _by_target(by_set, targets)
            for name, by_set in (("matches", self._totals), ("kmers", known), ("seen", seen))
        }
        target = np.append(np.arange(len(targets.names)), -1)
        return {"target": target, "reads": self._reads, "bases": self._bases} | counts


class CoverageCounts:
    """Counts how often each k-mer of the targets' records was matched, by its places in them.

    Eight bytes a distinct k-mer, and four a symbol of the records, which the dictionary must have.
    """

    def __init__(self, matcher: Matcher) -> None:
        self._numbers = matcher.labels.numbers
        self._threads = matcher.spec.threads or usable_cores()
        self._records = matcher.dictionary.records
        self._changes = np.zeros(matcher.dictionary.codes.size + 1, np.int64)

    def add(self, result: BatchResult) -> None:
        """Count the windows of the next batch."""
        chosen = np.arange(len(result.batch))
        _count(result, chosen, _NO_BITS, self._changes, _NO_COUNTS, self._threads)

    def columns(self, bins: int) -> Iterator[Columns]:
        """``bins`` rows a target, each of equally many bases, the first ones of one more.

        target (index), start, end, kmers, seen, matches: int64. As many targets at once as
        have a bounded number of rows.
        """
        if self._records is None or self._numbers is None:
            return
        counts = np.cumsum(self._changes)
        offsets = self._records.offsets
        step = max(1, _ROWS_AT_ONCE // bins)
        for first in range(0, offsets.size - 1, step):
            stop = min(first + step, offsets.size - 1)
            rows = np.empty((len(COVERAGE_COLUMNS), (stop - first) * bins), np.int64)
            places = self._numbers.at, offsets, counts
            target_kernels.cover(*places, first, stop, bins, tuple(rows))
            yield dict(zip(COVERAGE_COLUMNS, rows, strict=True))


def _count(
    result: BatchResult,
    chosen: NDArray[np.int64],
    seen: NDArray[np.uint64],
    changes: NDArray[np.int64],
    totals: NDArray[np.int64],
    threads: int,
) -> None:
    """Count the windows of the reads ``chosen``, as ``target_kernels.count_windows`` does."""
    if result.numbers is None:
        return
    sets = np.zeros(0, np.uint32) if result.sets is None else result.sets
    offsets = result.batch.offsets
    known = result.numbers, sets, result.only_set, offsets, result.k
    count = partial(target_kernels.count_windows, *known)
    ends = np.cumsum(result.batch.lengths[chosen])
    symbols = int(ends[-1]) if ends.size else 0
    threads = min(threads, 1 + symbols // _PER_THREAD)
    if max(changes.size, 64 * seen.size) < _PARALLEL_FROM:
        threads = 1
    cuts = [0, *np.searchsorted(ends, [stop for _, stop in split_range(0, symbols, threads)])]
    cuts[-1] = chosen.size
    parts = [chosen[a:b] for a, b in zip(cuts, cuts[1:], strict=False)]
    run_each(count, [(part, seen, changes, totals) for part in parts], threads)


def _by_target(by_set: NDArray[np.int64], targets: TargetSets) -> NDArray[np.int64]:
    """The sums over the sets that hold each target, and the 0 of the last row."""
    counts = np.zeros(len(targets.names) + 1, np.int64)
    np.add.at(counts, targets.members, np.repeat(by_set, np.diff(targets.starts)))
    return counts
