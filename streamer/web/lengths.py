"""How long reads are: a histogram with two bins an octave."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

EDGES = [0, *(round(2 ** (half / 2)) for half in range(8, 2 * 22 + 1))]
"""The least length of each bin: 0, 16, 23, 32, ... 4,194,304; the last bin has the rest."""


class Lengths:
    """Counts of reads, and of their bases, by length."""

    def __init__(self) -> None:
        self.reads, self.bases = np.zeros((2, len(EDGES)), np.int64)

    def add(self, lengths: NDArray[np.int64]) -> None:
        """Count reads of these lengths (int64)."""
        bins = np.searchsorted(EDGES, lengths, side="right") - 1
        self.reads += np.bincount(bins, minlength=len(EDGES))
        self.bases += np.bincount(bins, lengths, len(EDGES)).astype(np.int64)

    def fields(self) -> dict[str, Any]:
        """For the page: edges, reads and bases of each bin."""
        return {"edges": EDGES, "reads": self.reads.tolist(), "bases": self.bases.tolist()}
