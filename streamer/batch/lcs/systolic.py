"""The CPU's default method: bit-vectors in a systolic array of vector lanes (see lanes.py).

The rows of a pass are cut into blocks of LANES x W words. A block sweeps over a stretch of columns
with its words in registers; the carries out of its last lane, a byte a column, are what the block
below it takes in.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from streamer.batch.lcs.lanes import INVERTED, LANES, ROWS, sweep
from streamer.batch.lcs.symbols import Pair

WORDS = (8, 4, 2)
"""Words a lane that a block may have; all blocks but the last two have the most."""

STRETCH = 2048
"""Columns at a time: their masks stay in the cache, and the 2 LANES - 2 steps at the edges cost
little."""

UNIT = LANES * ROWS
BLOCK = WORDS[0] * UNIT
"""Rows of a whole block, a multiple of 32."""

assert BLOCK % 32 == 0


class Group:
    """Blocks with the same number of words: their planes and their state."""

    def __init__(self, row: int, words: int, blocks: int, bits: int) -> None:
        self.row = row
        self.words = (0,) * words
        self.planes = np.zeros((blocks, bits * words * LANES), dtype=np.uint64)
        self.state = np.zeros((blocks, (words + 1) * LANES), dtype=np.uint64)


class SystolicSweep:
    """One pass over part of a table; ``parts`` lots of rows that different threads may work on.

    Lot p may do a stretch of columns once lot p - 1 has done it.
    """

    def __init__(
        self, pair: Pair, row: int, rows: int, column: int, columns: int, backward: bool, parts: int
    ) -> None:
        self.pair = pair
        self.rows = rows
        self.bits = (0,) * pair.planes
        self.start = column + columns - 1 if backward else column
        self.step = -1 if backward else 1
        self.carries = np.zeros(columns, dtype=np.uint8)
        self.groups = _groups(rows, pair.planes)
        first = row + rows - 1 if backward else row
        for group in self.groups:
            _pack(pair.a, first + self.step * group.row, self.step, rows - group.row,
                  len(group.words), len(self.bits), group.planes)  # fmt: skip
        whole = len(self.groups[0].state)
        self.parts = max(1, min(parts, whole))
        self._cuts = [whole * i // self.parts for i in range(self.parts + 1)]

    def run(self, part: int, first: int, stop: int) -> None:
        """Let a lot of rows take the columns [first, stop) of the pass."""
        symbols = np.empty(len(self.bits) * (STRETCH + 2 * LANES - 2), dtype=np.uint64)
        for at in range(first, stop, STRETCH):
            columns = min(STRETCH, stop - at)
            _masks(self.pair.b, self.start + self.step * at, self.step, columns, len(self.bits),
                   symbols)  # fmt: skip
            carries = self.carries[at : at + columns]
            for group, low, high in self._lot(part):
                _blocks(group.state[low:high], group.planes[low:high], symbols, carries,
                        group.words, self.bits)  # fmt: skip

    def export(self, part: int, pool: NDArray[np.uint32], at: int) -> None:
        """Write the bits of a lot's rows into the result that starts at pool word ``at``."""
        for group, low, high in self._lot(part):
            row = group.row + low * len(group.words) * UNIT
            _unpack(group.state[low:high], len(group.words), row, self.rows, pool, at)

    def _lot(self, part: int) -> list[tuple[Group, int, int]]:
        lots = [(self.groups[0], self._cuts[part], self._cuts[part + 1])]
        if part == self.parts - 1:
            lots += [(group, 0, len(group.state)) for group in self.groups[1:]]
        return lots


def _groups(rows: int, bits: int) -> list[Group]:
    """Whole blocks, then one or two smaller ones, so that few rows stand empty."""
    most, half, least = WORDS
    whole = rows // BLOCK
    rest = rows - whole * BLOCK
    tail: list[int] = []
    if rest > (half + least) * UNIT:
        whole += 1
    elif rest > half * UNIT:
        tail = [half, least]
    elif rest > least * UNIT:
        tail = [half]
    elif rest:
        tail = [least]
    groups = [Group(0, most, whole, bits)] if whole or not tail else []
    at = whole * BLOCK
    for words in tail:
        groups.append(Group(at, words, 1, bits))
        at += words * UNIT
    return groups


@njit(cache=True, nogil=True)
def _pack(a, first, step, rows, words, bits, planes):  # type: ignore[no-untyped-def]
    """The planes of the rows ``a[first], a[first + step], ...``; rows beyond the last are symbol 0.

    What those rows match does not matter: carries only go from a row to later ones.
    """
    lane = words * ROWS
    for block in range(planes.shape[0]):
        for which in range(LANES):
            for word in range(words):
                row = (block * LANES + which) * lane + word * ROWS
                count = min(ROWS, rows - row)
                for p in range(bits):
                    value = np.uint64(0)
                    at = first + step * row
                    for i in range(count):
                        value |= np.uint64((a[at] >> np.uint8(p)) & np.uint8(1)) << np.uint64(i)
                        at += step
                    planes[block, (p * words + word) * LANES + which] = value


@njit(cache=True, nogil=True)
def _masks(b, first, step, columns, bits, symbols):  # type: ignore[no-untyped-def]
    """The masks C_p of the columns ``b[first], b[first + step], ...``, last column first."""
    flip = ~np.uint64(0) if INVERTED else np.uint64(0)
    stride = columns + 2 * LANES - 2
    top = np.uint64(1) << np.uint64(ROWS)
    for p in range(bits):
        for i in range(LANES - 1):
            symbols[p * stride + i] = top ^ flip
            symbols[p * stride + stride - 1 - i] = top ^ flip
        guard = top if p == 0 else np.uint64(0)
        base = p * stride + columns + LANES - 2
        for c in range(columns):
            bit = np.uint64((b[first + step * c] >> np.uint8(p)) & np.uint8(1))
            symbols[base - c] = ((np.uint64(0) - bit) | guard) ^ flip


@njit(cache=True, nogil=True)
def _blocks(state, planes, symbols, carries, words, bits):  # type: ignore[no-untyped-def]
    """Blocks one above the other over one stretch of columns; LANES - 1 steps at each edge."""
    columns = carries.size
    edge = LANES - 1
    for block in range(state.shape[0]):
        held = state[block]
        rows = planes[block]
        if columns > edge:
            sweep(held, rows, symbols, carries, columns, 0, edge, words, bits, True)
            sweep(held, rows, symbols, carries, columns, edge, columns, words, bits, False)
            sweep(held, rows, symbols, carries, columns, columns, columns + edge, words, bits, True)
        else:
            sweep(held, rows, symbols, carries, columns, 0, columns + edge, words, bits, True)


@njit(cache=True, nogil=True)
def _unpack(state, words, row, rows, pool, at):  # type: ignore[no-untyped-def]
    """The rows' bits from ``row`` on into the pool, 32 to a word; what stands below ``row`` is
    kept."""
    out = at + (row >> 5)
    held = row & 31
    pending = np.uint64(0)
    if held:
        pending = np.uint64(pool[out]) & ((np.uint64(1) << np.uint64(held)) - np.uint64(1))
    for block in range(state.shape[0]):
        for which in range(LANES):
            for word in range(words):
                count = min(ROWS, rows - row)
                if count <= 0:
                    break
                value = state[block, word * LANES + which]
                if count < ROWS:
                    value &= (np.uint64(1) << np.uint64(count)) - np.uint64(1)
                row += count
                # 31 bits may wait: the word is taken in two halves
                pending |= (value & np.uint64(0xFFFFFFFF)) << np.uint64(held)
                low = min(32, count)
                held += low
                if held >= 32:
                    pool[out] = np.uint32(pending & np.uint64(0xFFFFFFFF))
                    out += 1
                    pending >>= np.uint64(32)
                    held -= 32
                if count > 32:
                    pending |= (value >> np.uint64(32)) << np.uint64(held)
                    held += count - 32
                    if held >= 32:
                        pool[out] = np.uint32(pending & np.uint64(0xFFFFFFFF))
                        out += 1
                        pending >>= np.uint64(32)
                        held -= 32
    if held:
        pool[out] = np.uint32(pending & np.uint64(0xFFFFFFFF))
