"""The report of targets during a stream: all rows, changed rows, and targets with enough data.

Reads are counted by barcode; a row of all reads is summed from those of the barcodes.

Rows of target counts, built only when they have changed or are requested.

A panel may have 100,000 targets, of which one second of a run touches a few.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from streamer.errors import StreamerError
from streamer.matching.matcher import StreamMatcher
from streamer.matching.panel import VERDICTS, Panel
from streamer.matching.reports import Assignment, Columns
from streamer.matching.result import BatchResult
from streamer.matching.target_counts import CoverageByLabel, TargetCounts
from streamer.sequences.context import LabelColumn, label_order
from streamer.sequences.sample_sheet import SAMPLE_COLUMNS, SampleSheet

Row = list[Any]
"""barcode (if by barcode), target, reads, bases, matches, kmers, seen, breadth, depth.

Then, where the columns are asked for, sample, alias, control and verdict.
"""

By = Literal["barcode", "group"] | None

# the columns that change
_COUNTS = ("reads", "bases", "matches", "seen")


class CountedRows:
    """The rows of one group of reads: one per target, and the last for unassigned reads.

    first: the columns before the target, the same in each row. Only numbers are stored, 40 bytes a
    row; rows are built on request.
    """

    def __init__(self, names: Sequence[str], first: Sequence[str | None] = ()) -> None:
        self._names = names
        self._first = first
        self._counts = np.zeros((len(_COUNTS), len(names) + 1), np.int64)
        self._kmers = np.zeros(len(names) + 1, np.int64)

    def take(self, columns: Columns) -> NDArray[np.int64]:
        """Store the current counts; return the numbers of the rows that differ from the last call.

        columns: as from ``TargetCounts.columns``. All counts are 0 before the first call.
        """
        counts = np.stack([columns[name] for name in _COUNTS])
        changed = np.flatnonzero((counts != self._counts).any(axis=0))
        self._counts, self._kmers = counts, columns["kmers"]
        return changed

    def found(self, first: int = 0) -> NDArray[np.int64]:
        """Return the numbers of the rows from ``first`` on with a nonzero count."""
        return first + np.flatnonzero(self._counts[:, first:].any(axis=0))

    @property
    def columns(self) -> Columns:
        """The columns that ``take`` got last, without the target."""
        return dict(zip(_COUNTS, self._counts, strict=True)) | {"kmers": self._kmers}

    def rows(self, chosen: Sequence[int]) -> list[Row]:
        """Build the rows with these numbers."""
        names, first, last = self._names, self._first, len(self._names)
        made: list[Row] = []
        values = [*self._counts[:, chosen].tolist(), self._kmers[chosen].tolist()]
        for at, *row in zip(chosen, *values, strict=True):
            reads, bases, matches, seen, kmers = row
            if at == last:
                made.append([*first, None, reads, bases, *[None] * 5])
                continue
            ratios = (round(seen / kmers, 4), round(matches / kmers, 4)) if kmers else (None, None)
            made.append([*first, names[at], reads, bases, matches, kmers, seen, *ratios])
        return made


class RowMarks:
    """Marks which rows of which groups of reads have changed since the last ``take``."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._marked: dict[str | None, NDArray[np.bool_]] = {}

    def add(self, label: str | None, changed: NDArray[np.int64]) -> None:
        """Mark rows of a group as changed."""
        if changed.size:
            marked = self._marked.setdefault(label, np.zeros(self._rows, np.bool_))
            marked[changed] = True

    def take(self) -> dict[str | None, list[int]]:
        """Return the marked rows by group, ascending, and clear the marks."""
        taken, self._marked = self._marked, {}
        return {label: np.flatnonzero(marked).tolist() for label, marked in taken.items()}


OTHER = "other"
"""Stands for all barcodes beyond the limit."""


class TargetTally:
    """Counts matches against one dictionary; thread-safe.

    said: (barcode, group, target) reported before as having enough. covers: also count how often
    each k-mer was matched, in all or by barcode. until: the last record whose reads were counted at
    the start. barcodes: the most barcodes counted separately, in the order of their first reads;
    further ones count together as OTHER. full: called with one line when that happens. sheet: all
    of its barcodes have rows, also without reads.
    """

    def __init__(
        self,
        matcher: StreamMatcher,
        rule: Assignment,
        panel: Panel,
        said: Iterable[tuple[str | None, str | None, str | None]] = (),
        *,
        covers: Literal["barcode"] | bool = False,
        barcodes: int = 1 << 62,
        full: Callable[[str], None] = lambda line: None,
        sheet: SampleSheet | None = None,
    ) -> None:
        self.dictionary = matcher.dictionary
        self.until = 0
        self.said = set(said)
        self._panel = panel
        self._counts = TargetCounts(matcher, rule)
        self._covered = CoverageByLabel(matcher) if covers else None
        self._by_sample = covers == "barcode"
        self._grouped = None
        if self.dictionary.index.groups:
            self._grouped = TargetCounts(matcher, rule, self.dictionary.by_group())
        self._lock = threading.Lock()
        self._sheet = sheet or SampleSheet()
        self._apart: dict[str, None] = dict.fromkeys(self._sheet.samples)
        self._most = max(barcodes, len(self._apart))
        self._full: Callable[[str], None] | None = full
        names = self.dictionary.targets.names
        # row numbers by name; several records may have one name
        self._numbers: dict[str, list[int]] = {}
        for at, name in enumerate(names):
            self._numbers.setdefault(name, []).append(at)
        # by barcode, and for all reads
        self._rows: dict[str | None, CountedRows] = {}
        self._touched: set[str | None] = {*self._apart}
        self._known = False
        self._all = CountedRows(names)
        self._fresh = {by_barcode: RowMarks(len(names) + 1) for by_barcode in (True, False)}
        self._unjudged = RowMarks(len(names) + 1)

    def add(self, results: Iterable[BatchResult]) -> None:
        """Count the reads of batches."""
        with self._lock:
            for result in results:
                context = result.batch.context
                barcodes = LabelColumn.same(None, len(result.batch))
                if context is not None:
                    barcodes = self._sheet.barcodes(context).used().of(self._told_apart)
                self._counts.add(result, barcodes)
                if self._grouped is not None:
                    self._grouped.add(result)
                if self._covered is not None:
                    self._covered.add(result, barcodes if self._by_sample else None)
                self._touched.update(barcodes.labels)
                if len(barcodes.index) and barcodes.index.min() < 0:
                    self._touched.add(None)

    def _told_apart(self, barcode: str) -> str:
        """Return the barcode, or OTHER if there are too many."""
        if barcode in self._apart:
            return barcode
        if len(self._apart) < self._most:
            self._apart[barcode] = None
            return barcode
        if self._full is not None:
            self._full(f"more than {self._most:,} barcodes: further ones count as {OTHER}")
            self._full = None
        return OTHER

    def more_columns(self, by: By) -> list[str]:
        """The columns that ``more`` adds to rows: those of a sample sheet, and the verdict."""
        if by == "group":
            return []
        of_sheet = SAMPLE_COLUMNS if by and self._sheet.samples else ()
        return [*of_sheet, *(["verdict"] if self._panel.limits else [])]

    def some_rows(
        self, first: int, most: int, by: By = None, *, found: bool = False, more: bool = False
    ) -> tuple[list[Row], list[int], int]:
        """Return up to so many of all rows of ``match --report targets``, from ``first`` on.

        by: as of ``--by``; by group there are none if no target has a group. found: only rows with
        a nonzero count. more: with the values of ``more_columns``. Also returns the rows' numbers,
        and how many rows there are in all.
        """
        with self._lock:
            self._refresh()
            groups: dict[str | None, CountedRows] = {None: self._all}
            if by == "barcode":
                groups = {label: self._rows[label] for label in sorted(self._rows, key=label_order)}
            a_group = len(self.dictionary.targets.names) + 1
            if by == "group":
                if self._grouped is None:
                    return [], [], 0
                names = self._grouped.targets.names
                groups, more, a_group = {None: CountedRows(names)}, False, len(names) + 1
                groups[None].take(self._grouped.columns())
            ordered = [*groups]
            rows: list[Row] = []
            numbers: list[int] = []
            for at in range(first // a_group, len(groups)):
                begin = max(0, first - at * a_group)
                group = groups[ordered[at]]
                chosen = group.found(begin) if found else np.arange(begin, a_group)
                some = chosen[: most - len(rows)].tolist()
                made = group.rows(some)
                if more:
                    made = self._with_more(made, ordered[at], group, some, by)
                rows += made
                numbers += [at * a_group + number for number in some]
                if len(rows) >= most:
                    break
            return rows, numbers, a_group * len(groups)

    def _with_more(
        self,
        rows: list[Row],
        label: str | None,
        group: CountedRows,
        some: Sequence[int],
        by: By,
    ) -> list[Row]:
        """Add the values of ``more_columns`` to rows of a barcode, or of all reads."""
        if by and self._sheet.samples:
            of_sheet = self._sheet.columns(label)
            rows = [[*row, *of_sheet] for row in rows]
        if self._panel.limits:
            names = self.dictionary.targets.names
            controls = self._controls(label) if by else []
            codes = self._panel.verdicts(
                names, group.columns, controls, negative=label in self._sheet.negative
            )
            rows = [
                [*row, VERDICTS[code]] for row, code in zip(rows, codes[some].tolist(), strict=True)
            ]
        return rows

    def _controls(self, label: str | None) -> list[Columns]:
        """Return the counts of the negative controls, none for one of them."""
        negative = self._sheet.negative
        return [] if label in negative else [self._rows[code].columns for code in negative]

    def coverage(self, target: str, bins: int, barcode: str | None = None) -> Columns | None:
        """Return the rows of ``match --report coverage`` for one target, without its name.

        barcode: of its reads alone; None: all reads. Returns None if that is not counted. Raises
        StreamerError for a target that the dictionary does not have.
        """
        covered, names = self._covered, self.dictionary.targets.names
        if covered is None or (barcode is not None and not self._by_sample):
            return None
        if target not in names:
            raise StreamerError(f"no target of the dictionary is '{target}'")
        with self._lock:
            rest = (
                []
                if barcode is not None
                else [part for label, part in covered.counts.items() if label]
            )
            # anyone may ask for any barcode
            counts = covered.of(barcode, keep=False)
            columns = counts.of_target(names.index(target), bins, rest)
        return {name: values for name, values in columns.items() if name != "target"}

    def reads(self) -> list[tuple[str | None, str | None, int]]:
        """Barcode, target (None: no target) and the number of reads assigned to it, if nonzero."""
        with self._lock:
            return [*self._counts.reads()]

    def changed(self, *, by_barcode: bool) -> list[Row]:
        """The rows that changed since the last call, or, the first time, that are not zero."""
        with self._lock:
            self._refresh()
            fresh = self._fresh[by_barcode].take()
            groups: dict[str | None, CountedRows] = self._rows if by_barcode else {None: self._all}
            ordered = sorted(fresh, key=label_order)
            return [row for label in ordered for row in groups[label].rows(fresh[label])]

    def enough(self) -> list[Row]:
        """Barcode, group, target, reads, breadth, depth of targets that newly have enough."""
        with self._lock:
            self._refresh()
            unjudged = self._unjudged.take()
            return [
                row
                for label in sorted(unjudged, key=label_order)
                for row in self._enough(label, unjudged[label])
            ]

    def _enough(self, label: str | None, changed: Sequence[int]) -> list[Row]:
        """Return the same for a barcode with changed rows."""
        table: list[Row] = []
        names, numbers, groups = self.dictionary.targets.names, self._numbers, self._panel.groups
        wanted = dict.fromkeys(names[at] for at in changed if at < len(names))
        if groups:
            wanted = dict.fromkeys(name for members in groups.values() for name in members)
        needed = [at for name in wanted for at in numbers[name]]
        rows = dict(zip(needed, self._rows[label].rows(needed), strict=True))

        controls = [columns["reads"] for columns in self._controls(label)]

        def passes(group: str | None, name: str | None, members: Iterable[str]) -> bool:
            counted = [at for member in members for at in numbers[member]]
            reads, matches, kmers, seen = (
                sum(rows[at][column] for at in counted) for column in (2, 4, 5, 6)
            )
            breadth, depth = (seen / kmers, matches / kmers) if kmers else (0.0, 0.0)
            control = max((int(each[counted].sum()) for each in controls), default=0)
            enough = bool(self._panel.reached(reads, breadth, depth, matches, control))
            if enough and (label, group, name) not in self.said:
                self.said.add((label, group, name))
                table.append([label, group, name, reads, round(breadth, 4), round(depth, 4)])
            return enough

        for group, chosen in groups.items() or [(None, wanted)]:
            members = dict.fromkeys(chosen)
            each = [passes(None, name, [name]) for name in members]
            if group is not None and each and all(each):
                passes(group, None, members)
        return table

    def _refresh(self) -> None:
        """Rebuild the rows of barcodes that have changed."""
        if not self._touched and self._known:
            return
        self._known = True
        for label in self._touched:
            rows = self._rows.get(label)
            if rows is None:
                names = self.dictionary.targets.names
                rows = self._rows[label] = CountedRows(names, [label])
            changed = rows.take(self._counts.columns(label))
            self._fresh[True].add(label, changed)
            self._unjudged.add(label, changed)
        self._fresh[False].add(None, self._all.take(self._counts.union()))
        self._touched = set()
