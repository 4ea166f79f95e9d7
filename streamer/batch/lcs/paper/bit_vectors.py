"""The bit-parallel method (seed, Listing 3 with line 12 of Listing 4), a 64-bit word at a time.

    v = (v + (v & m) + carry) | (v & ~m)        m: the rows whose symbol is the column's

v has a 0 where the length grows by that row. Line 13 of Listing 3 confuses B[j] and B[j-1]; Listing
4 is correct. Per word and column: a load of m, 7 operations, a load and a store of v.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamer.batch.lcs.passes import Part
from streamer.batch.lcs.symbols import Pair
from trie.cpu.jit import njit

LOT_WORDS = 64
"""The fewest words per lot of rows: with fewer, passing on the carries costs more than it gains."""


class BitParallelSweep:
    """A pass in ``lots`` lots of rows for different threads (a ``waves.Sweep``).

    Backward passes read the sequences from their ends (the paper's llcs_bp').
    """

    def __init__(self, pair: Pair, part: Part, lots: int) -> None:
        self._part = part
        self._b = pair.b
        words = -(-part.rows // 64)
        self._matches = np.zeros((pair.symbols, words), dtype=np.uint64)
        _match_vectors(pair.a, part.first_row, part.step, part.rows, self._matches)
        self._v = np.full(words, ~np.uint64(0))
        self._carries = np.zeros(part.columns, dtype=np.uint8)
        self.lots = max(1, min(lots, words // LOT_WORDS))
        self._cuts = [words * i // self.lots for i in range(self.lots + 1)]

    def run(self, lot: int, first: int, stop: int) -> None:
        """Advance a lot of rows over the columns [first, stop) of the pass."""
        low, high = self._cuts[lot : lot + 2]
        step = self._part.step
        _columns(self._v, self._matches, low, high, self._b, self._part.first_column + step * first,
                 step, self._carries[first:stop])  # fmt: skip

    def export(self, lot: int, pool: NDArray[np.uint32], at: int) -> None:
        """Write the bits of a lot's rows into the result that starts at pool word ``at``."""
        low, high = self._cuts[lot : lot + 2]
        grows = (~self._v[low:high]).view(np.uint32)
        stop = min(2 * high, -(-self._part.rows // 32))
        pool[at + 2 * low : at + stop] = grows[: stop - 2 * low]


@njit(cache=True, nogil=True)
def _match_vectors(a, first, step, rows, matches):
    """Bit i of matches[c]: the i-th row's symbol is c (lines 5-9 of Listing 3)."""
    for i in range(rows):
        matches[a[first + step * i], i >> 6] |= np.uint64(1) << np.uint64(i & 63)


@njit(cache=True, nogil=True)
def _columns(v, matches, low, high, b, first, step, carries):
    """Advance the words [low, high) over columns; ``carries``: in from below, then out above."""
    at = first
    for column in range(carries.size):
        of_symbol = matches[b[at]]
        at += step
        carry = np.uint64(carries[column])
        for word in range(low, high):
            v[word], carry = next_word(v[word], of_symbol[word], carry)
        carries[column] = np.uint8(carry)


@njit(cache=True, nogil=True, inline="always")
def next_word(value, matches, carry):
    """Return a word of v after the next column, and its carry out."""
    some = value + (value & matches)
    total = some + carry
    carry = np.uint64(some < value) | np.uint64(total < some)
    return total | (value & ~matches), carry
