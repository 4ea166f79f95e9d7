"""The CPU's default method: bit-vectors in a systolic array of vector lanes (see lane_sweep.py).

The rows of a pass are cut into blocks of LANES x W words. A block sweeps over a stretch of columns
with its words in registers; the carries out of its last lane, a byte per column, enter the next
block.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.batch.lcs.lane_sweep import LAG, LANES, ROWS, TABLE_SYMBOLS, sweep
from streamer.batch.lcs.operands import (
    BEHIND,
    TABLE_ROWS,
    beside,
    masks,
    pack,
    tabulate,
    unpack,
)
from streamer.batch.lcs.passes import Part
from streamer.batch.lcs.symbols import Pair
from trie.cpu.jit import njit

# possible words per lane of a block; all blocks except the last two have the most
WORDS = (8, 4, 2)

STRETCH = 2048
"""Columns per stretch: their masks stay in the cache, and steps at the edges cost little."""

TABLE_STRETCH = 16_384  # columns per stretch if blocks build a table before each
UNIT = LANES * ROWS
BLOCK = WORDS[0] * UNIT  # rows of a whole block, a multiple of 32

assert BLOCK % 32 == 0


class Group:
    """Blocks with the same number of words: their planes and state."""

    def __init__(self, row: int, words: int, blocks: int, bits: int, lag: int) -> None:
        self.row = row
        self.words = (0,) * words
        self.planes = np.zeros((blocks, bits * words * LANES), dtype=np.uint64)
        self.state = np.zeros((blocks, (words + lag) * LANES), dtype=np.uint64)


class SystolicSweep:
    """A pass in ``lots`` lots of rows for different threads (a ``waves.Sweep``)."""

    def __init__(self, pair: Pair, part: Part, lots: int) -> None:
        self._rows = part.rows
        self._bits = (0,) * pair.planes
        self._by_table = pair.symbols <= TABLE_SYMBOLS
        # columns in the order in which the pass takes them
        columns = pair.b[part.column : part.column + part.columns]
        self._columns = columns[::-1].copy() if part.backward else columns
        self._carries = np.zeros(part.columns, dtype=np.uint8)
        self._groups = _groups(part.rows, pair.planes, LAG if self._by_table else 1)
        for group in self._groups:
            pack(pair.a, part.first_row + part.step * group.row, part.step, part.rows - group.row,
                 len(group.words), pair.planes, group.planes)  # fmt: skip
        whole = len(self._groups[0].state)
        self.lots = max(1, min(lots, whole))
        self._cuts = [whole * i // self.lots for i in range(self.lots + 1)]

    @property
    def state(self) -> list[NDArray[Any]]:
        """Return the state with which the rows continue, then the carries out of the last row."""
        return [*(group.state for group in self._groups), self._carries]

    def run(self, lot: int, first: int, stop: int) -> None:
        """Advance a lot of rows over the columns [first, stop) of the pass."""
        bits = len(self._bits)
        most = min(TABLE_STRETCH if self._by_table else STRETCH, stop - first)
        if self._by_table:
            symbols: NDArray[Any] = np.empty(most + BEHIND, dtype=np.uint8)
            scratch = np.empty((TABLE_ROWS + 4) * WORDS[0] * LANES, dtype=np.uint64)
        else:
            symbols = np.empty(bits * (most + 2 * LANES - 2), dtype=np.uint64)
        for at in range(first, stop, most):
            columns = self._columns[at : min(at + most, stop)]
            carries = self._carries[at : at + columns.size]
            if self._by_table:
                beside(columns, symbols[: columns.size + BEHIND])
            else:
                masks(columns, bits, symbols)
            for group, low, high in self._lot(lot):
                state, planes = group.state[low:high], group.planes[low:high]
                if self._by_table:
                    _blocks_by_table(state, planes, bits, symbols, carries, group.words, scratch)
                else:
                    _blocks_by_planes(state, planes, symbols, carries, group.words, self._bits)

    def export(self, lot: int, pool: NDArray[np.uint32], at: int) -> None:
        """Write the bits of a lot's rows into the result that starts at pool word ``at``."""
        for group, low, high in self._lot(lot):
            row = group.row + low * len(group.words) * UNIT
            unpack(group.state[low:high], len(group.words), row, self._rows, pool, at)

    def _lot(self, lot: int) -> list[tuple[Group, int, int]]:
        """Return groups and ranges of their blocks; the last lot also has the smaller groups."""
        blocks = [(self._groups[0], self._cuts[lot], self._cuts[lot + 1])]
        if lot == self.lots - 1:
            blocks += [(group, 0, len(group.state)) for group in self._groups[1:]]
        return blocks


def _groups(rows: int, bits: int, lag: int) -> list[Group]:
    """Make full blocks, then one or two smaller ones, so that few rows are empty."""
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
    """Run blocks, top to bottom, over one stretch of columns."""
    for block in range(state.shape[0]):
        _block(state[block], planes[block], symbols, carries, LANES - 1, words, bits)


@njit(cache=True, nogil=True)
def _blocks_by_table(state, planes, bits, symbols, carries, words, scratch):
    """Like ``_blocks_by_planes``, with a table of each block's match words."""
    vectors = len(words) * LANES
    matches = scratch[: 4 * vectors]
    table = scratch[4 * vectors : (4 + TABLE_ROWS) * vectors]
    for block in range(state.shape[0]):
        tabulate(planes[block], bits, len(words), matches, table)
        _block(state[block], table, symbols, carries, BEHIND, words, ())


@njit(cache=True, nogil=True)
def _block(state, rows, symbols, carries, behind, words, bits):
    """Run one block; the last lane trails the first by ``behind`` columns."""
    columns = carries.size
    ended = columns + behind
    if columns > behind:
        sweep(state, rows, symbols, carries, columns, 0, behind, words, bits, True)
        sweep(state, rows, symbols, carries, columns, behind, columns, words, bits, False)
        sweep(state, rows, symbols, carries, columns, columns, ended, words, bits, True)
    else:
        sweep(state, rows, symbols, carries, columns, 0, ended, words, bits, True)
