"""Reports produced during matching: tables of rows after each batch, or after the last one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from streamer.dictionary.target_sets import TargetSets
from streamer.errors import warn
from streamer.matching import target_counts
from streamer.matching.matcher import StreamMatcher
from streamer.matching.novelty import NOVELTY_COLUMNS, NoveltyCurve
from streamer.matching.reports import Assignment, Columns, Ratio, Report, ReportTables
from streamer.matching.result import BatchResult
from streamer.output.text_table import NULL, Column, Labels, Lookup, Table, distinct, same
from streamer.sequences.context import LabelColumn, label_order

if TYPE_CHECKING:
    from streamer.matching.panel import Panel
    from streamer.sequences.sample_sheet import SampleSheet


class Answer(Protocol):
    """The rows of a report.

    columns: their names in order. depths: batches must be matched with ``want_depths``.

    ordered: results must come in the order of their batches.
    """

    columns: tuple[str, ...]
    depths: bool = False
    ordered: bool = False

    def after(self, result: BatchResult) -> Iterable[Table]:
        """Return the rows of the next batch."""

    def last(self) -> Iterable[Table]:
        """Return the rows that follow those of all batches."""
        return ()


class RowAnswer(Answer):
    """Rows of windows, intervals, reads, or ends within a distance."""

    def __init__(self, report: Report, targets: TargetSets, k: int) -> None:
        self.columns, self._rows, self.depths = report
        self._targets = targets
        self._tables = ReportTables(targets, k)

    def after(self, result: BatchResult) -> Iterator[Table]:
        """Yield tables of a bounded number of rows."""
        for columns in self._rows(result, self._targets):
            yield self._tables.table(columns, result.batch.names)


class TargetAnswer(Answer):
    """One row per target, then one for the unassigned reads.

    by: repeat them for each barcode, taken from the batches' context; or the targets are groups.
    sheet: with its columns, and rows of all its barcodes. panel: with a verdict.
    """

    def __init__(
        self,
        matcher: StreamMatcher,
        rule: Assignment,
        by: Literal["barcode", "group"] | None,
        sheet: SampleSheet | None = None,
        panel: Panel | None = None,
    ) -> None:
        self._target = "group" if by == "group" else "target"
        self._sheet, self._panel = sheet, panel
        self._first = first = ("barcode",) if by == "barcode" else ()
        more = () if sheet is None else sheet.header
        judged = () if panel is None else ("verdict",)
        self.columns = (*first, self._target, *target_counts.TARGET_COLUMNS[1:], *more, *judged)
        self._counts = target_counts.TargetCounts(matcher, rule)

    def after(self, result: BatchResult) -> Iterable[Table]:
        """Return no rows yet."""
        self._counts.add(result, _barcodes(result, self._sheet) if self._first else None)
        return ()

    def last(self) -> Iterator[Table]:
        """Yield one table, or one per barcode in ascending order; warn of samples and controls."""
        sheet = self._sheet
        if not self._first:
            yield self._table(None, self._counts.columns(), [])[0]
            return
        samples, negative = ({}, ()) if sheet is None else (sheet.samples, sheet.negative)
        controls = [self._counts.columns(name) for name in negative]
        detected, reads = dict[str | None, list[str]](), dict[str | None, int]()
        for barcode in sorted({*self._counts.groups, *samples}, key=label_order):
            columns = self._counts.columns(barcode)
            table, detected[barcode] = self._table(barcode, columns, controls)
            reads[barcode] = int(columns["reads"].sum())
            yield table
        if sheet is not None:
            from streamer.matching.panel import Panel

            for line in (self._panel or Panel()).alarms(sheet, detected, reads):
                warn(line)

    def _table(
        self, barcode: str | None, columns: Columns, controls: Sequence[Columns]
    ) -> tuple[Table, list[str]]:
        """Return the rows of one barcode, and the names of the targets found in it.

        controls: counts of the negative controls.
        """
        names, more = self._counts.targets.names, dict[str, Column]()
        before = {key: same(barcode, len(names) + 1) for key in self._first}
        chosen = columns["reads"] > 0
        negative = False
        if self._sheet is not None:
            negative = barcode in self._sheet.negative
            of_sheet = zip(self._sheet.header, self._sheet.columns(barcode), strict=True)
            more = {name: same(value, len(names) + 1) for name, value in of_sheet}
        if self._panel is not None:
            others = [] if negative else controls
            codes = self._panel.verdicts(names, columns, others, negative=negative)
            chosen = codes == self._panel.words.index("detected")
            more["verdict"] = Labels(self._panel.words).gather(codes)
        kmers, seen, matches = columns["kmers"], columns["seen"], columns["matches"]
        table = Table(
            {
                **before,
                self._target: Labels(names).gather(columns["target"]),
                "reads": columns["reads"],
                "bases": columns["bases"],
                "matches": _but_last(matches),
                "kmers": _but_last(kmers),
                "seen": _but_last(seen),
                "breadth": _ratios(seen, kmers),
                "depth": _ratios(matches, kmers),
                **more,
            }
        )
        return table, [names[at] for at in np.flatnonzero(chosen[:-1]).tolist()]


class CoverageAnswer(Answer):
    """``bins`` rows per target; by_barcode: for each barcode that has a read."""

    def __init__(
        self, matcher: StreamMatcher, bins: int, *, by_barcode: bool, sheet: SampleSheet | None
    ) -> None:
        self._first = ("barcode",) if by_barcode else ()
        self.columns = (*self._first, *target_counts.COVERAGE_COLUMNS)
        self._counts = target_counts.CoverageByLabel(matcher)
        self._names = Labels(matcher.dictionary.targets.names)
        self._bins, self._sheet = bins, sheet

    def after(self, result: BatchResult) -> Iterable[Table]:
        """Return no rows yet."""
        self._counts.add(result, _barcodes(result, self._sheet) if self._first else None)
        return ()

    def last(self) -> Iterator[Table]:
        """Yield tables of a few targets each, one barcode after the other."""
        if not self._first:
            self._counts.of(None)  # also without a read
        for barcode in sorted(self._counts.counts, key=label_order):
            for columns in self._counts.of(barcode).columns(self._bins):
                before = {name: same(barcode, columns["start"].size) for name in self._first}
                targets = self._names.gather(columns["target"])
                yield Table({**before, **columns, "target": targets})


def _barcodes(result: BatchResult, sheet: SampleSheet | None) -> LabelColumn:
    """The barcode of each read, as the sheet writes it."""
    context = result.batch.context
    assert context is not None
    return context.barcode if sheet is None else sheet.barcodes(context)


class NoveltyAnswer(Answer):
    """One row per point of the novelty curve."""

    columns = NOVELTY_COLUMNS
    ordered = True

    def __init__(self) -> None:
        self._curve = NoveltyCurve()

    def after(self, result: BatchResult) -> Iterable[Table]:
        """Return no rows yet."""
        self._curve.add(result.batch.offsets, result.new_starts)
        return ()

    def last(self) -> Iterator[Table]:
        """Yield one table."""
        yield Table({**self._curve.columns()})


def _ratios(parts: NDArray[Any], wholes: NDArray[Any]) -> Lookup:
    """Return part / whole with four decimals; null where the whole is 0."""
    quotients = np.divide(parts, wholes, out=np.full(parts.size, np.nan), where=wholes != 0)
    return distinct(
        quotients, lambda some: [Ratio(round(q, 4)) if q == q else None for q in some.tolist()]
    )


def _but_last(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Replace the last row by null."""
    return np.append(counts[:-1], NULL)
