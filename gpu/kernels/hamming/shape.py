"""Shapes of the kernel ``bit_sliced``: what it is made for, and patterns in its form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

BASES = 4

WHOLE = 32
"""Symbols of a pattern that are added in one network."""

STEP = 16
"""Symbols that are added at once where there are more."""

WORDS = 8
"""Words a lane; 8, so that the longest pattern reaches no further than into the next segment."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a kernel is made for: patterns of ``length`` symbols, k mismatches.

    length: up to WHOLE; 0 for all above, which differ in nothing but ``planes``, those of the
    counters. k: -1 for these. words: a lane, a power of two, at most 32 // BATCH. halo: words
    behind a row, at least m - 1 and at most 32 * words. gapped: patterns may hold gap codes.
    """

    length: int
    k: int
    planes: int
    words: int
    halo: int
    gapped: bool

    @property
    def span(self) -> int:
        """Words of a tile, S."""
        return 32 * self.words

    @property
    def tile(self) -> int:
        """Windows of a tile."""
        return 32 * self.span

    @property
    def row(self) -> int:
        """Words of a row."""
        return self.span + self.halo

    @property
    def fixed(self) -> int:
        """Rows behind those of the bases: ones for gap codes, zeros behind a pattern's end."""
        return self.gapped + (not self.length)

    def padded(self, length: int) -> int:
        """Symbols of a pattern as ``steps_of`` has them."""
        step = 4 if self.length else STEP
        return -(-length // step) * step


def shape_for(length: int, k: int, gapped: bool) -> Shape:
    """The kernel for patterns of ``length`` symbols, perhaps with gap codes, and k mismatches."""
    bits = k.bit_length()
    if length <= WHOLE:
        return Shape(length, k, bits, WORDS, 32, gapped)
    return Shape(0, -1, max(1, bits), WORDS, 256, gapped)


def steps_of(patterns: NDArray[np.uint8], shape: Shape) -> NDArray[np.uint64]:
    """Where in ``rows`` each symbol of uint8[r, m] patterns begins, in bytes, two a uint64.

    uint64[r * shape.padded(m) / 2]. What lies behind the end is in the row of zeros, if there is
    one, and not read if there is none.
    """
    count, length = patterns.shape
    zeros = (BASES + shape.fixed - 1) * shape.row
    places = np.full((count, shape.padded(length)), zeros, dtype=np.uint32)
    rows = np.minimum(patterns, BASES).astype(np.uint32) * np.uint32(shape.row)
    places[:, :length] = rows + np.arange(length, dtype=np.uint32)
    return np.ascontiguousarray(places * np.uint32(4)).view(np.uint64).ravel()
