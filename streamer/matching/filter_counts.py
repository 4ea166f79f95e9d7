"""What a filter read and passed: reads and bases, by target and by barcode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer.matching.target_kernels import count_filtered
from streamer.sequences.context import LabelColumn

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
