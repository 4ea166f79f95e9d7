"""The CPU's default method: bit-vectors in a systolic array of vector lanes (see lanes.py).

The rows of a pass are cut into blocks of LANES x W words. A block sweeps over a stretch of columns
with its words in registers; the carries out of its last lane, a byte a column, are what the block
below it takes in.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.batch.lcs.lanes import LAG, LANES, ROWS, TABLE_SYMBOLS, sweep
from streamer.batch.lcs.operands import (
    BEHIND,
    TABLE_ROWS,
    beside,
    masks,
    pack,
    tabulate,
    unpack,
)
from streamer.batch.lcs.symbols import Codes, Pair
from trie.cpu.jit import njit

WORDS = (8, 4, 2)
"""Words a lane that a block may have; all blocks but the last two have the most."""

STRETCH = 2048
"""Columns at a time: their masks stay in the cache, and the steps at the edges cost little."""

TABLE_STRETCH = 16_384
"""The same where a block makes a table before each stretch."""

UNIT = LANES * ROWS
BLOCK = WORDS[0] * UNIT
"""Rows of a whole block, a multiple of 32."""

assert BLOCK % 32 == 0


class Group:
    """Blocks with the same number of words: their planes and their state."""

    def __init__(self, row: int, words: int, blocks: int, bits: int, lag: int) -> None:
        self.row = row
        self.words = (0,) * words
        self.planes = np.zeros((blocks, bits * words * LANES), dtype=np.uint64)
        self.state = np.zeros((blocks, (words + lag) * LANES), dtype=np.uint64)


class SystolicSweep:
    """One pass over part of a table; ``parts`` lots of rows that different threads may work on.

    Lot p may do a stretch of columns once lot p - 1 has done it.
    """

    def __init__(
        self, pair: Pair, row: int, rows: int, column: int, columns: int, backward: bool, parts: int
    ) -> None:
        self.rows = rows
        self.bits = (0,) * pair.planes
        self.looked_up = pair.symbols <= TABLE_SYMBOLS
        # a pass reads its columns forwards, whichever way they come
        part = pair.b[column : column + columns]
        self.columns: Codes = part[::-1].copy() if backward else part
        self.carries = np.zeros(columns, dtype=np.uint8)
        self.groups = _groups(rows, pair.planes, LAG if self.looked_up else 1)
        step = -1 if backward else 1
        first = row + rows - 1 if backward else row
        for group in self.groups:
            pack(pair.a, first + step * group.row, step, rows - group.row, len(group.words),
                 pair.planes, group.planes)  # fmt: skip
        whole = len(self.groups[0].state)
        self.parts = max(1, min(parts, whole))
        self._cuts = [whole * i // self.parts for i in range(self.parts + 1)]

    def run(self, part: int, first: int, stop: int) -> None:
        """Let a lot of rows take the columns [first, stop) of the pass."""
        most = min(TABLE_STRETCH if self.looked_up else STRETCH, stop - first)
        if self.looked_up:
            symbols: NDArray[Any] = np.empty(most + BEHIND, dtype=np.uint8)
            scratch = np.empty((TABLE_ROWS + 4) * WORDS[0] * LANES, dtype=np.uint64)
        else:
            symbols = np.empty(len(self.bits) * (most + 2 * LANES - 2), dtype=np.uint64)
        for at in range(first, stop, most):
            columns = self.columns[at : min(at + most, stop)]
            carries = self.carries[at : at + columns.size]
            if self.looked_up:
                beside(columns, symbols[: columns.size + BEHIND])
            else:
                masks(columns, len(self.bits), symbols)
            for group, low, high in self._lot(part):
                state, planes = group.state[low:high], group.planes[low:high]
                if self.looked_up:
                    _blocks_by_table(state, planes, len(self.bits), symbols, carries, group.words,
                                     scratch)  # fmt: skip
                else:
                    _blocks_by_planes(state, planes, symbols, carries, group.words, self.bits)

    def export(self, part: int, pool: NDArray[np.uint32], at: int) -> None:
        """Write the bits of a lot's rows into the result that starts at pool word ``at``."""
        for group, low, high in self._lot(part):
            row = group.row + low * len(group.words) * UNIT
            unpack(group.state[low:high], len(group.words), row, self.rows, pool, at)

    def _lot(self, part: int) -> list[tuple[Group, int, int]]:
        lots = [(self.groups[0], self._cuts[part], self._cuts[part + 1])]
        if part == self.parts - 1:
            lots += [(group, 0, len(group.state)) for group in self.groups[1:]]
        return lots


def _groups(rows: int, bits: int, lag: int) -> list[Group]:
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
    groups = [Group(0, most, whole, bits, lag)] if whole or not tail else []
    at = whole * BLOCK
    for words in tail:
        groups.append(Group(at, words, 1, bits, lag))
        at += words * UNIT
    return groups


@njit(cache=True, nogil=True)
def _blocks_by_planes(state, planes, symbols, carries, words, bits):
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
def _blocks_by_table(state, planes, bits, symbols, carries, words, scratch):
    """The same with a table of each block's match words, BEHIND steps at each edge."""
    columns = carries.size
    ended = columns + BEHIND
    vectors = len(words) * LANES
    matches = scratch[: 4 * vectors]
    table = scratch[4 * vectors : (4 + TABLE_ROWS) * vectors]
    for block in range(state.shape[0]):
        held = state[block]
        tabulate(planes[block], bits, len(words), matches, table)
        if columns > BEHIND:
            sweep(held, table, symbols, carries, columns, 0, BEHIND, words, (), True)
            sweep(held, table, symbols, carries, columns, BEHIND, columns, words, (), False)
            sweep(held, table, symbols, carries, columns, columns, ended, words, (), True)
        else:
            sweep(held, table, symbols, carries, columns, 0, ended, words, (), True)
