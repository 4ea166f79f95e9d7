"""The rows of targets, and which of them the page shows.

A panel may have 100,000 targets, and each barcode a row of each: the page shows those with the most
reads, and says how many there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import nlargest
from typing import Any

from streamer.matching.target_tally import Panel

MAX_TARGETS, MAX_BARCODES, MAX_MAP_TARGETS = 500, 100, 100
"""Rows of targets; rows and columns of the heat map."""

Row = list[Any]
Key = tuple[str | None, ...]
# of a row of targets, behind the barcode
_READS, _BASES, _MATCHES, _KMERS, _SEEN = 1, 2, 3, 4, 5


class TargetRows:
    """Rows of counts by target, and by barcode and target; ``version``: of the dictionary."""

    def __init__(self, panel: Panel) -> None:
        self.version: int | None = None
        self.complete = True
        self._panel = panel
        self._watched = {name for members in panel.groups.values() for name in members}
        self._targets: dict[Key, Row] = {}
        self._barcodes: dict[Key, Row] = {}

    def clear(self) -> None:
        """Forget all rows."""
        self._targets, self._barcodes = {}, {}

    def take(self, rows: Iterable[Sequence[Any]], *, by_barcode: bool) -> None:
        """Rows that have changed."""
        held = self._barcodes if by_barcode else self._targets
        for row in rows:
            held[tuple(row[: 1 + by_barcode])] = list(row)

    def replace(self, rows: Iterable[Sequence[Any]], *, by_barcode: bool) -> None:
        """All rows, in place of those that were known."""
        held = {tuple(row[: 1 + by_barcode]): list(row) for row in rows}
        if by_barcode:
            self._barcodes = held
        else:
            self._targets = held

    def fields(self) -> dict[str, Any]:
        """For the page: the targets with the most reads, and the same for each barcode.

        targets: rows of ``match --report targets``. map: barcode, the numbers of the columns
        ``map_targets`` for each of them: reads, breadth, depth, enough (0 or 1). of: how many
        targets and barcodes there are.
        """
        targets = [row for row in self._targets.values() if row[0] is not None]
        top = nlargest(MAX_TARGETS, targets, key=_weight)
        shown = {row[0] for row in top[:MAX_MAP_TARGETS] if _weight(row) > (0, 0)}
        # in file order, as a panel is read
        columns = [row[0] for row in targets if row[0] in shown]
        barcodes = sorted({key[0] for key in self._barcodes}, key=lambda label: label or ".")
        return {
            "targets": top,
            "unassigned": self._targets.get((None,)),
            "map_targets": columns,
            "map": [
                [barcode, [self._cell(barcode, target) for target in columns]]
                for barcode in barcodes[:MAX_BARCODES]
            ],
            "enough": self._enough(barcodes),
            "of": {"targets": len(targets), "barcodes": len(barcodes)},
            "version": self.version,
            "complete": self.complete,
        }

    def barcode_sums(self) -> list[list[Any]]:
        """Of each barcode: its label, reads, bases, reads on target, and targets with a read."""
        sums: dict[str | None, list[Any]] = {}
        for (barcode, target), row in self._barcodes.items():
            found = sums.setdefault(barcode, [barcode, 0, 0, 0, 0])
            reads, bases = row[1 + _READS] or 0, row[1 + _BASES] or 0
            found[1] += reads
            found[2] += bases
            if target is not None:
                found[3] += reads
                found[4] += reads > 0
        return [sums[barcode] for barcode in sorted(sums, key=lambda label: label or ".")]

    def _cell(self, barcode: str | None, target: str | None) -> list[Any]:
        row = self._barcodes.get((barcode, target))
        if row is None:
            # none of its k-mers was seen, if it has any
            kmers = self._targets[target,][_KMERS]
            nothing = 0.0 if kmers else None
            return [0, nothing, nothing, 0]
        return [row[2], row[7], row[8], int(self._is_enough(row))]

    def _is_enough(self, row: Row) -> bool:
        """As the daemon decides on the topic ``enough``."""
        if self._watched and row[1] not in self._watched:
            return False
        return self._reached([row])

    def _reached(self, rows: Sequence[Row]) -> bool:
        reads, matches, kmers, seen = (
            sum(row[1 + at] or 0 for row in rows) for at in (_READS, _MATCHES, _KMERS, _SEEN)
        )
        breadth, depth = (seen / kmers, matches / kmers) if kmers else (0.0, 0.0)
        return self._panel.reached(reads, breadth, depth)

    def _enough(self, barcodes: Sequence[str | None]) -> dict[str, Any] | None:
        """For each barcode how many of the watched targets there is enough of, and which groups.

        None if nothing is ever enough.
        """
        panel = self._panel
        if not (panel.breadth or panel.depth or panel.reads):
            return None
        names = {key[0] for key in self._targets if key[0] is not None}
        watched = names & self._watched if self._watched else names
        # most targets have no row in most barcodes, so only rows that there are are looked at
        enough: dict[str | None, set[str]] = {label: set() for label in barcodes[:MAX_BARCODES]}
        for (barcode, target), row in self._barcodes.items():
            if target in watched and barcode in enough and self._is_enough(row):
                enough[barcode].add(target)
        found = []
        for barcode, reached in enough.items():
            groups = [
                group
                for group, members in panel.groups.items()
                if members
                and reached.issuperset(members)
                and self._reached([self._barcodes[barcode, name] for name in members])
            ]
            found.append([barcode, len(reached), groups])
        limits = {"breadth": panel.breadth, "depth": panel.depth, "reads": panel.reads}
        return {"watched": len(watched), "rows": found, "limits": limits}


def _weight(row: Row) -> tuple[int, int]:
    """Targets with more reads come first, of equals those with more matches."""
    return row[_READS] or 0, row[_MATCHES] or 0
