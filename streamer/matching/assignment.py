"""Which target a read is assigned to: the rule of reports, filters and decisions."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer.dictionary.target_sets import TargetSets
from streamer.matching import target_kernels
from streamer.matching.reports import best_windows
from streamer.matching.result import BatchResult

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
        assigned = np.empty_like(best)
        least = min(self.min_windows, _MOST)
        target_kernels.assign_reads(best, most, windows, least, self.min_fraction, assigned)
        return Assigned(assigned, most, windows)
