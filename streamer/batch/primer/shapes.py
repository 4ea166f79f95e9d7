"""How windows are cut into pieces that a text is searched for, and where that pays (pigeonhole).

A window cut into p pieces that matches within k - 1 differences has a piece with at most (k - 1)
// p: with p = k an exact one, with p = (k - 1) // 2 + 1 one with at most one error. Longer pieces
are rarer in a text; shorter windows are shared by more starts. ``shape_for`` weighs the two, and
the scan of all windows, which needs no pieces.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MOST_ROWS = 32  # symbols of a window at most: a word
SHORTEST = 3  # symbols of a piece at least
MOST_SYMBOLS = 12  # symbols of a piece at most: a table of 4**12 begins
MOST_WINDOWS = 1 << 24  # windows of a table at most: a key has 24 bits for them


@dataclass(frozen=True, slots=True)
class CutShape:
    """Pieces a window, symbols a piece, errors a piece (0 or 1)."""

    pieces: int
    symbols: int
    errors: int

    @property
    def window(self) -> int:
        """Symbols of a window."""
        return self.pieces * self.symbols

    def candidates(self, windows: float) -> float:
        """Pieces that a column of random text may stand for."""
        codes = max(1, 9 * self.symbols - 8) if self.errors else 1
        return windows * self.pieces * codes / 4.0**self.symbols


@dataclass(frozen=True, slots=True)
class CutCosts:
    """What a column of the text costs on some machine, in any unit.

    scanned: a window of 32 rows. candidate: for each column that it is verified along, and
    found: before that. shared: starts that share a window of the scan.
    """

    scanned: float
    candidate: float
    found: float
    shared: float


def cuttable(k: int) -> bool:
    """Whether any window can be cut into pieces for k differences."""
    return SHORTEST * ((k - 1) // 2 + 1) <= MOST_ROWS


def shape_for(k: int, lengths: NDArray[np.int64], costs: CutCosts) -> CutShape | None:
    """The cheapest shape for prefixes of these lengths; None where the scan is cheaper.

    Starts share a window as in ``windows``: of n prefixes that are c long, n / (c + 2 - window).
    A prefix too short for a window is left to the scan, where it shares with none.
    """
    if lengths.size == 0:
        return None
    scan = np.maximum(lengths - np.median(lengths) + costs.shared, 1)
    best, least = None, costs.scanned * float(((lengths // 32 + 1) / scan).sum())
    for errors, pieces in ((0, k), (1, (k - 1) // 2 + 1)):
        for symbols in range(SHORTEST, MOST_SYMBOLS + 1):
            shape = CutShape(pieces, symbols, errors)
            if shape.window > MOST_ROWS:
                break
            whole = lengths + 1 >= shape.window
            windows = float((1 / (lengths[whole] + 2 - shape.window)).sum())
            each = costs.found + costs.candidate * (shape.window + 2 * (k - 1))
            cost = shape.candidates(windows) * each + costs.scanned * int((~whole).sum())
            if cost < least:
                best, least = shape, cost
    return best
