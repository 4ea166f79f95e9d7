"""The reports of exact and approximate matching, in columns: dicts of equally long arrays.

Reads and targets are indices in a report; ``ReportTables`` substitutes their names. The rule that
assigns a read to a target is here, too, for reports, filters and decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer.dictionary.target_sets import TargetSets
from streamer.matching import events as event_runs
from streamer.matching import target_kernels
from streamer.matching.record_runs import NO_RUNS
from streamer.matching.result import BatchResult
from streamer.output.text_table import Column, Labels, Lookup, NameLists, Table, distinct
from trie.codes import decode_kmers
from trie.cpu.threads import free_threads, run_each, usable_cores
from trie.strands import SIGNS
from trie.windows import NO_SET

Columns = dict[str, NDArray]  # type: ignore[type-arg]

INTERVAL_COLUMNS = ("read", "start", "end", "event", "windows", "target")
READ_COLUMNS = ("read", "length", "windows", "matches", "mismatches", "skipped", "best_target")

# as expected by ``event_runs.runs``
_RUN_TYPES = {
    "read": np.dtype(np.int64), "start": np.dtype(np.int64), "end": np.dtype(np.int64),
    "windows": np.dtype(np.int64), "target": np.dtype(np.uint32), "event": np.dtype(np.uint8),
}  # fmt: skip
_NO_SUMMARIES = (*[np.zeros(0, np.int64)] * 5, np.zeros(0, np.int32))

# symbols worth another thread
_PER_THREAD = 1 << 21

_WINDOWS_AT_ONCE = 1 << 19


def windows(result: BatchResult, symbols: slice = slice(None)) -> Columns:
    """Return one row per window without a gap code; the batch must be matched with ``want_depths``.

    symbols: restricts the rows to windows that begin at these symbols of the batch.

    Columns: read int64 (index), start int64, event uint8, depth uint8, target uint32 (target set).
    """
    if result.depths is None:
        raise ValueError("the windows report needs want_depths")
    at = np.flatnonzero(result.events[symbols]) + (symbols.start or 0)
    read = np.searchsorted(result.batch.offsets, at, side="right") - 1
    return {
        "read": read,
        "start": at - result.batch.offsets[read],
        "event": result.events[at],
        "depth": result.depths.depths[at],
        "target": result.sets_at(at),
    }


def window_pieces(result: BatchResult) -> Iterator[Columns]:
    """Yield the rows of ``windows`` a bounded number at a time, as each takes 100 bytes."""
    for start in range(0, result.batch.symbols, _WINDOWS_AT_ONCE):
        yield windows(result, slice(start, start + _WINDOWS_AT_ONCE))


def intervals(result: BatchResult) -> Columns:
    """Return a row per maximal run of windows at consecutive starts with one event and target set.

    Columns: read int64 (index), start int64, end int64 (of the last window), event uint8, windows
    int64, target uint32 (target set).
    """
    offsets = result.batch.offsets
    parts, threads = _split(offsets)
    # windows of one set need not be looked for in runs
    cut = NO_RUNS if result.has_one_set else result.runs
    bits = result.found.bytes_of_bits
    write = partial(event_runs.runs, *bits, offsets, result.k, cut, result.default_set, -1)
    if result.has_one_set:
        counts = [sums[4:] for sums in _summarized(result, -1)[1]]
    else:
        nothing = tuple(np.zeros(0, t) for t in _RUN_TYPES.values())
        none = nothing, nothing, _NO_SUMMARIES
        counts = [s[4:] for s in run_each(write, [(*part, 0, 0, *none) for part in parts], threads)]
    rows = list(accumulate(map(sum, counts), initial=0))
    columns = tuple(np.empty(rows[-1], t) for t in _RUN_TYPES.values())
    if rows[-1]:
        places, to = zip(parts, rows, strict=False), (columns, columns, _NO_SUMMARIES)
        run_each(write, [(*part, row, -1, *to) for part, row in places], threads)
    found = dict(zip(_RUN_TYPES, columns, strict=True))
    return {name: found[name] for name in INTERVAL_COLUMNS}


def only_target(result: BatchResult, targets: TargetSets) -> int:
    """Return the target (index) of every matching window, -1 if there is none or more than one."""
    if result.default_set == NO_SET or not targets.names:
        return -1
    return int(targets.members[targets.starts[result.default_set]])


def reads(result: BatchResult, targets: TargetSets) -> Columns:
    """Return one row per read, even if shorter than k.

    Columns: read int64 (index), length, windows, matches, mismatches, skipped (all int64; skipped
    windows contain a gap code), best_target int32 (the target with the most matching windows, the
    first of equals; -1 if none).
    """
    return _with_best(result, targets)[0]


def best_windows(
    result: BatchResult, targets: TargetSets
) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]]:
    """For each read ``best_target``, its windows that match that, and all without a gap code."""
    columns, most = _with_best(result, targets)
    return columns["best_target"], most, columns["windows"]


def _with_best(result: BatchResult, targets: TargetSets) -> tuple[Columns, NDArray[np.int64]]:
    """The rows of ``reads``, and for each the windows that match its best target."""
    columns, _ = _summarized(result, only_target(result, targets))
    if result.has_one_set and (result.default_set != NO_SET or not targets.names):
        return columns, columns["matches"]
    most = np.empty(len(result.batch), np.int64)
    offsets = result.batch.offsets

    def choose(first: int, stop: int) -> None:
        counts = event_runs.kept_zeros("sets", len(targets))
        tally = event_runs.kept_zeros("targets", len(targets.names))
        event_runs.best_targets(
            result.runs, offsets, targets.starts, targets.members, counts, tally, first, stop,
            columns["best_target"], most,
        )  # fmt: skip

    run_each(choose, *_split(offsets))
    return columns, most


def _summarized(result: BatchResult, target: int) -> tuple[Columns, list[tuple[int, ...]]]:
    """Return a row per read, and what ``event_runs.summarize`` returns for each part."""
    offsets = result.batch.offsets
    parts, threads = _split(offsets)
    columns = {name: np.empty(len(result.batch), np.int64) for name in READ_COLUMNS[:-1]}
    columns[READ_COLUMNS[-1]] = np.empty(len(result.batch), np.int32)
    numbers, *rest = columns.values()
    count = partial(event_runs.summarize, *result.found.bytes_of_bits, offsets, result.k, target)
    return columns, run_each(count, [(*part, numbers, tuple(rest)) for part in parts], threads)


def _split(offsets: NDArray[np.int64]) -> tuple[list[tuple[int, int]], int]:
    """Split the reads into ranges of similar length; also return how many threads to use."""
    total = int(offsets[-1])
    threads = free_threads(min(total // _PER_THREAD, usable_cores()))
    if threads <= 1:
        return [(0, offsets.size - 1)], 1
    cuts = np.searchsorted(offsets, np.arange(1, threads) * total // threads)
    bounds = np.unique([0, *cuts.tolist(), offsets.size - 1]).tolist()
    return list(pairwise(bounds)), threads


def _near(names: dict[str, str], *, best: bool = False) -> Report:
    """Define a report of approximate matching; ``names``: the columns' names in its result."""

    def rows(result: BatchResult, _: TargetSets) -> Iterable[Columns]:
        assert result.near is not None
        chosen = result.near.best() if best else slice(None)
        yield {column: getattr(result.near, name)[chosen] for column, name in names.items()}

    return Report(tuple(names), rows)


class Report(NamedTuple):
    """A report written to files: its columns in order, and the rows of a batch, in parts.

    depths: requires ``want_depths``.
    """

    columns: tuple[str, ...]
    rows: Callable[[BatchResult, TargetSets], Iterable[Columns]]
    depths: bool = False


_LEVENSHTEIN = {
    "read": "read", "start": "start", "end": "end", "distance": "distance",
    "strand": "strand", "kmer": "code", "target": "target",
}  # fmt: skip

REPORTS = {
    "windows": Report(
        ("read", "start", "event", "depth", "target"),
        lambda result, _: window_pieces(result),
        depths=True,
    ),
    "intervals": Report(INTERVAL_COLUMNS, lambda result, _: [intervals(result)]),
    "reads": Report(READ_COLUMNS, lambda result, targets: [reads(result, targets)]),
    "all": _near(_LEVENSHTEIN),
    "best": _near(_LEVENSHTEIN, best=True),
    "ltb": _near({"read": "read", "end": "end", "distances": "matches", "depths": "mismatches"}),
}
"""By the name in ``match --report``, and ``ltb`` for that semantics."""


_FEW_SETS = 500  # name these sets once, not per batch

STRAND_NAMES = Labels(SIGNS)
EVENT_NAMES = Labels(["none", "match", "mismatch"])


class Ratio(float):
    """A ratio: four decimals in TSV, an ordinary number in JSON."""

    def __str__(self) -> str:
        return f"{self:.4f}"


class ReportTables:
    """Replaces indices in report columns by names. k: of the codes in a column ``kmer``."""

    def __init__(self, targets: TargetSets, k: int = 0) -> None:
        self._targets = targets
        self._named: dict[str, Callable[[NDArray[Any]], Column]] = {
            "event": EVENT_NAMES.gather,
            "target": self._target_names,
            "best_target": Labels(targets.names).gather,
            "strand": STRAND_NAMES.gather,
            "kmer": lambda codes: distinct(codes, lambda codes: decode_kmers(codes, k)),
            "distances": bit_lists,
            "depths": bit_lists,
        }

    def table(self, columns: Columns, names: Sequence[str]) -> Table:
        """Return the rows as users see them; ``names``: of the batch's reads."""
        named = self._named | {"read": Labels(names).gather}
        return Table(
            {
                name: named[name](values) if name in named else values
                for name, values in columns.items()
            }
        )

    def _target_names(self, sets: NDArray[Any]) -> Column:
        if len(self._targets) > _FEW_SETS:
            return distinct(sets, lambda ids: [*map(self._targets.shown, ids.tolist())], NameLists)
        return self._set_names.gather(np.minimum(sets, len(self._targets)))

    @cached_property
    def _set_names(self) -> Labels:
        """Return the names of all sets, followed by that of no set."""
        return NameLists([*map(self._targets.shown, [*range(len(self._targets)), int(NO_SET)])])


def bit_lists(bitmaps: NDArray[Any]) -> Lookup:
    """Return the set bits of each bitmap, ascending, joined by commas; null if there are none."""
    return distinct(bitmaps, lambda maps: [_bits_of(int(bits)) for bits in maps])


def _bits_of(bitmap: int) -> str | None:
    """Return the set bits, ascending, joined by commas; None if there are none."""
    return ",".join(str(bit) for bit in range(32) if bitmap >> bit & 1) or None


_MOST = 1 << 62  # windows, more than any read has


class Assigned(NamedTuple):
    """The assignment of each read.

    target: int32, its index, -1 if unassigned. matches: int64, windows that match the read's best
    target, assigned or not. windows: int64, windows without a gap code.
    """

    target: NDArray[np.int32]
    matches: NDArray[np.int64]
    windows: NDArray[np.int64]


class Assignment(NamedTuple):
    """The rule: a read is assigned to its best target if enough of its windows match that.

    min_windows: the least number of such windows. min_fraction: the least share, 0 to 1, of the
    read's windows without a gap code.
    """

    min_windows: int = 1
    min_fraction: float = 0.0

    def targets_of(self, result: BatchResult, targets: TargetSets) -> NDArray[np.int32]:
        """Return int32[reads]: the target index of each read, -1 if unassigned."""
        return self.assign(result, targets).target

    def assign(self, result: BatchResult, targets: TargetSets) -> Assigned:
        """Return the target of each read, and the numbers of windows that decided it."""
        best, most, windows = best_windows(result, targets)
        # division rounds like a parsed decimal, so equal fractions compare equal
        share = most / np.maximum(windows, 1)
        enough = (most >= self.min_windows) & (share >= self.min_fraction)
        return Assigned(np.where(enough, best, np.int32(-1)), most, windows)

    def assign_pairs(
        self, results: Sequence[BatchResult], targets: TargetSets, *, both: bool
    ) -> NDArray[np.int32]:
        """Return the target of each pair, by the distinct matching windows of both reads.

        results: of the first and of the other mates, or one, in which mates follow each other.
        both: as in ``target_kernels.assign_pairs``.
        """
        reads = [(own.found.bits, own.batch.bases, own.batch.offsets, own.runs) for own in results]
        step = 3 - len(results)
        assigned = np.empty(len(results[0].batch) // step, np.int32)
        known = targets.starts, targets.members, len(targets.names)
        least = min(self.min_windows, _MOST)
        target_kernels.assign_pairs(
            reads[0], reads[-1], step, results[0].k, both, results[0].default_set, known, least,
            self.min_fraction, assigned,
        )  # fmt: skip
        return assigned
