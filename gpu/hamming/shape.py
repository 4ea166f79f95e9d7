"""Shapes of the kernel ``bit_sliced``, and patterns in its form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trie.codes import GAP

BASES = 4

WHOLE = 32  # symbols of a pattern that are added in one network
STEP = 16  # symbols that are added at once where there are more
WORDS = 8  # words a lane
SPAN = 32 * WORDS  # words of a tile, S: a segment's windows
TILE = 32 * SPAN  # windows of a tile

BRANCHED, MOST_BRANCHED = 0.42, 5
"""Of a pattern's symbols, those whose words are not loaded but made from planes in registers; their
rows take 2 (6 + 2 of them) registers.
"""


def place(row: int) -> int:
    """Where a row is in a plane: two words are left out behind eight, a lane's.

    So two of a lane's at once come from other banks than the next lane's.
    """
    return row + row // WORDS * 2


@dataclass(frozen=True, slots=True)
class SlicedShape:
    """The parameters of a kernel: patterns of ``length`` symbols, k mismatches.

    length: up to WHOLE; 0 for all above, which differ in nothing but ``planes``, those of the
    counters. k: -1 for these. halo: rows behind a tile's, at least m - 1 and at most S. branched:
    symbols of a pattern that are handled behind branches.
    """

    length: int
    k: int
    planes: int
    halo: int
    branched: int

    @property
    def row(self) -> int:
        """Words of a plane; even."""
        return place(SPAN + self.halo)

    @property
    def positions(self) -> list[int]:
        """The symbols of a whole pattern or a step, those behind branches last.

        They are odd ones, since two words are loaded at once where the first is even.
        """
        symbols = list(range(self.length or STEP))
        last = symbols[1::2][len(symbols) // 2 - self.branched :]
        return [j for j in symbols if j not in last] + last

    @property
    def loaded(self) -> int:
        """Symbols whose words are loaded, of a whole pattern or of a step."""
        return (self.length or STEP) - self.branched

    @property
    def rows(self) -> int:
        """Rows of a plane that a lane keeps in registers."""
        return self.branched and 2 * self.branched + WORDS - 2

    @property
    def step(self) -> int:
        """Symbols of a step, or of a whole pattern, as ``steps_of`` has them."""
        return -(-(self.length or STEP) // 4) * 4

    @property
    def registers(self) -> int:
        """Registers a thread at most."""
        return 96 if 0 < self.length <= 16 else 128

    def steps(self, length: int) -> int:
        """Steps of a pattern."""
        return -(-length // self.step)


def shape_for(length: int, k: int) -> SlicedShape:
    """The kernel for patterns of ``length`` symbols and k mismatches."""
    bits = k.bit_length()
    if length <= WHOLE:
        return SlicedShape(length, k, bits, 32, min(int(BRANCHED * length), MOST_BRANCHED))
    return SlicedShape(0, -1, max(1, bits), SPAN, 0)


def steps_of(patterns: NDArray[np.uint8], shape: SlicedShape) -> NDArray[np.uint32]:
    """What ``search`` asks for at each symbol of uint8[r, m] patterns: uint32[r, steps, step].

    Where in ``rows`` the symbol's row begins, in bytes, or behind a branch the code. A gap code is
    an A. What lies behind a longer pattern's end is in the row of zeros.
    """
    count, length = patterns.shape
    steps = shape.steps(length)
    places = np.full((count, steps * shape.step), BASES * shape.row, dtype=np.uint32)
    codes = np.where(patterns < GAP, patterns, 0).astype(np.uint32)
    if shape.length:
        places[:, :length] = codes[:, shape.positions]
        places[:, : shape.loaded] *= np.uint32(4 * shape.row)
    else:
        before = np.arange(length) // STEP * place(STEP)
        places[:, :length] = codes * np.uint32(shape.row) + before.astype(np.uint32)
        places *= np.uint32(4)
    return places.reshape(count, steps, shape.step)
