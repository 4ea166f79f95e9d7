"""What a filter took in and let out: reads and bases, for each target and barcode."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.sequences.read_batch import ReadBatch

_COUNTS = ("reads_in", "bases_in", "reads_out", "bases_out")


class FilterCounts:
    """Counts reads and bases that go in and come out."""

    def __init__(self, targets: Sequence[str]) -> None:
        self._targets = targets
        # by target, the last row for reads that are assigned to none
        self._by_target = np.zeros((len(targets) + 1, len(_COUNTS)), np.int64)
        self._by_barcode: dict[str | None, NDArray[np.int64]] = {}
        self._adding = threading.Lock()

    def add(
        self, reads: ReadBatch, assigned: NDArray[np.int32], let_out: NDArray[np.bool_]
    ) -> None:
        """Count more reads, with a context by barcode too. assigned: targets, -1 for none.

        Several threads may do so at a time.
        """
        lengths = reads.lengths
        with self._adding:
            self._by_target += _sums(assigned, len(self._targets) + 1, lengths, let_out)
            if reads.context is None:
                return
            barcodes = reads.context.barcode
            labels = [*barcodes.labels, None]
            for label, sums in zip(
                labels, _sums(barcodes.index, len(labels), lengths, let_out), strict=True
            ):
                if sums[0]:
                    known = self._by_barcode.setdefault(label, np.zeros_like(sums))
                    known += sums

    @property
    def totals(self) -> dict[str, int]:
        """Of all reads."""
        return dict(zip(_COUNTS, self._by_target.sum(axis=0).tolist(), strict=True))

    def summary(self) -> dict[str, Any]:
        """For JSON: all reads, each target in file order, then null, and each barcode."""
        barcodes = sorted(self._by_barcode.items(), key=lambda one: one[0] or ".")
        return {
            **self.totals,
            "targets": _rows("target", [*self._targets, None], self._by_target),
            "barcodes": _rows("barcode", *zip(*barcodes, strict=True)) if barcodes else [],
        }


def _sums(
    index: NDArray[np.int32],
    size: int,
    lengths: NDArray[np.int64],
    let_out: NDArray[np.bool_],
) -> NDArray[np.int64]:
    """int64[size, 4]: the counts by index, -1 is the last."""
    rows = np.where(index < 0, size - 1, index)
    weights = (None, lengths, let_out, lengths * let_out)
    # sums of doubles: exact for any batch
    sums = [np.bincount(rows, weights=each, minlength=size) for each in weights]
    return np.stack(sums, axis=1).astype(np.int64)


def _rows(key: str, names: Sequence[str | None], counts: Any) -> list[dict[str, Any]]:
    return [
        {key: name} | dict(zip(_COUNTS, row.tolist(), strict=True))
        for name, row in zip(names, counts, strict=True)
    ]
