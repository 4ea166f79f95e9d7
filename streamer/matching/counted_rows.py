"""Rows of target counts, built only when they have changed or are requested.

A panel may have 100,000 targets, of which one second of a run touches a few.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.matching.reports import Columns

Row = list[Any]
"""barcode (if by barcode), target, reads, bases, matches, kmers, seen, breadth, depth."""

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
