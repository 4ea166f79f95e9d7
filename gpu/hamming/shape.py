"""Shapes of the kernel ``bit_sliced``, and patterns encoded for it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trie.codes import GAP

BASES = 4

WHOLE = 32  # longest pattern that is added in one network
STEP = 16  # symbols added at once in longer patterns
WORDS = 8  # words per lane
SPAN = 32 * WORDS  # words in a tile; S, the windows of a segment
TILE = 32 * SPAN  # windows of a tile

BRANCHED, MOST_BRANCHED = 0.42, 5
"""Share, and most, of a pattern's symbols whose words are not loaded but computed from planes in
registers; the rows of b such symbols take 2 (6 + 2 b) registers.
"""


def place(row: int) -> int:
    """The index of a row in a plane: two words are skipped after every eight, a lane's words.

    So a lane loads two words at once from other banks than the next lane.
    """
    return row + row // WORDS * 2


@dataclass(frozen=True, slots=True)
class SlicedShape:
    """The parameters of a kernel: patterns of ``length`` symbols, k mismatches.

    length: up to WHOLE; 0 for all longer patterns, whose shapes differ only in ``planes``, those of
    the counters. k: -1 for these. halo: rows after a tile's, at least m - 1 and at most S.
    branched: symbols of a pattern that are handled by branches.
    """

    length: int
    k: int
    planes: int
    halo: int
    branched: int

    @property
    def row(self) -> int:
        """Words in a plane; even."""
        return place(SPAN + self.halo)

    @property
    def positions(self) -> list[int]:
        """The symbols of a whole pattern or a step, branched ones last.

        Branched symbols are odd ones, since two words are loaded at once if the first is even.
        """
        symbols = list(range(self.length or STEP))
        last = symbols[1::2][len(symbols) // 2 - self.branched :]
        return [j for j in symbols if j not in last] + last

    @property
    def loaded(self) -> int:
        """The number of symbols whose words are loaded, in a whole pattern or a step."""
        return (self.length or STEP) - self.branched

    @property
    def rows(self) -> int:
        """Rows of a plane that a lane keeps in registers."""
        return self.branched and 2 * self.branched + WORDS - 2

    @property
    def step(self) -> int:
        """Symbols in a step, or in a whole pattern, as in ``steps_of``."""
        return -(-(self.length or STEP) // 4) * 4

    @property
    def registers(self) -> int:
        """Most registers per thread."""
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
    """What ``search`` reads for each symbol of uint8[r, m] patterns: uint32[r, steps, step].

    The byte offset of the symbol's row in ``rows``, or for branched symbols the code. A gap code
    counts as A. Symbols after the end of a longer pattern use the row of zeros.
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
