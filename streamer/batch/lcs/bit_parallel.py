"""The bit-parallel method (seed, Listing 3 with line 12 of Listing 4), a 64-bit word at a time.

    v = (v + (v & m) + carry) | (v & ~m)        m: the rows whose symbol is the column's

v has a 0 where the length grows by that row. Line 13 of Listing 3 mixes B[j] and B[j-1]; Listing 4
has it right. Per word and column: a load of m, 7 operations, a load and a store of v.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamer.batch.lcs.symbols import Pair
from trie.cpu.jit import njit

LOT_WORDS = 64
"""The fewest words that a lot of rows has: with fewer, handing the carries on costs more than it
gains."""


class BitParallelSweep:
    """One pass over part of a table; ``parts`` lots of rows that different threads may work on.

    Lot p may do a stretch of columns once lot p - 1 has done it. Backward passes read the sequences
    from their ends (the paper's llcs_bp').
    """

    def __init__(
        self, pair: Pair, row: int, rows: int, column: int, columns: int, backward: bool, parts: int
    ) -> None:
        self.rows = rows
        self.b = pair.b
        self.start = column + columns - 1 if backward else column
        self.step = -1 if backward else 1
        words = -(-rows // 64)
        self.matches = np.zeros((pair.symbols, words), dtype=np.uint64)
        _match_vectors(pair.a, row + rows - 1 if backward else row, self.step, rows, self.matches)
        self.v = np.full(words, ~np.uint64(0))
        self.carries = np.zeros(columns, dtype=np.uint8)
        self.parts = max(1, min(parts, words // LOT_WORDS))
        self._cuts = [words * i // self.parts for i in range(self.parts + 1)]

    def run(self, part: int, first: int, stop: int) -> None:
        """Let a lot of rows take the columns [first, stop) of the pass."""
        low, high = self._cuts[part : part + 2]
        _columns(self.v, self.matches, low, high, self.b, self.start + self.step * first, self.step,
                 self.carries[first:stop])  # fmt: skip

    def export(self, part: int, pool: NDArray[np.uint32], at: int) -> None:
        """Write the bits of a lot's rows into the result that starts at pool word ``at``."""
        low, high = self._cuts[part : part + 2]
        grows = (~self.v[low:high]).view(np.uint32)
        stop = min(2 * high, -(-self.rows // 32))
        pool[at + 2 * low : at + stop] = grows[: stop - 2 * low]


@njit(cache=True, nogil=True)
def _match_vectors(a, first, step, rows, matches):
    """Bit i of matches[c]: the i-th row's symbol is c (lines 5-9 of Listing 3)."""
    for i in range(rows):
        matches[a[first + step * i], i >> 6] |= np.uint64(1) << np.uint64(i & 63)


@njit(cache=True, nogil=True)
def _columns(v, matches, low, high, b, first, step, carries):
    """The words [low, high) over columns; ``carries`` holds what enters below and then what leaves
    above."""
    at = first
    for column in range(carries.size):
        of_symbol = matches[b[at]]
        at += step
        carry = np.uint64(carries[column])
        for word in range(low, high):
            value = v[word]
            m = of_symbol[word]
            some = value + (value & m)
            total = some + carry
            carry = np.uint64(some < value) | np.uint64(total < some)
            v[word] = total | (value & ~m)
        carries[column] = np.uint8(carry)
