"""How to cut windows into pieces to search a text for, and when that pays (pigeonhole).

If a window of p pieces matches within k - 1 differences, some piece has at most (k - 1)

p: with p = k it is exact, with p = (k - 1)

2 + 1 it has at most one error. Longer pieces are rarer in a text; shorter windows are shared by
more starts. ``shape_for`` weighs these against each other, and against the scan of all windows,
which needs no pieces.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MOST_ROWS = 32  # most symbols of a window: one word
SHORTEST = 3  # least symbols of a piece
MOST_SYMBOLS = 12  # most symbols of a piece: a table has 4**12 begins
MOST_WINDOWS = 1 << 24  # most windows of a table: a key has 24 bits for them


@dataclass(frozen=True, slots=True)
class CutShape:
    """Pieces per window, symbols per piece, errors per piece (0 or 1)."""

    pieces: int
    symbols: int
    errors: int

    @property
    def window(self) -> int:
        """The symbols of a window."""
        return self.pieces * self.symbols

    def candidates(self, windows: float) -> float:
        """Return the number of pieces that a column of random text may match."""
        codes = max(1, 9 * self.symbols - 8) if self.errors else 1
        return windows * self.pieces * codes / 4.0**self.symbols


@dataclass(frozen=True, slots=True)
class CutCosts:
    """The costs of a column of text on some machine, in any unit.

    scanned: per window of 32 rows. candidate: per column along which it is verified. found: per
    candidate, before that. shared: starts that share a window of the scan.
    """

    scanned: float
    candidate: float
    found: float
    shared: float


def cuttable(k: int) -> bool:
    """Return whether any window can be cut into pieces for k differences."""
    return SHORTEST * ((k - 1) // 2 + 1) <= MOST_ROWS


def shape_for(k: int, lengths: NDArray[np.int64], costs: CutCosts) -> CutShape | None:
    """Return the cheapest shape for prefixes of these lengths; None if the scan is cheaper.

    Starts share a window as in ``windows``: n prefixes of length c need n / (c + 2 - window)
    windows. A prefix too short for a window is left to the scan, where it shares none.
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
