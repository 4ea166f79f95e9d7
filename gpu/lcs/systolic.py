"""Passes for the longest common subsequence by systolic warps in a persistent grid.

    strip 0   1024 W rows   lane 0 ... lane 31, W words of 32 rows each   | all columns of the pass
    strip 1   the next                                                    | from left to right

A lane does four columns per step, ``step`` in word_operations.py; lane l is at columns 4 (s - l) ..
in step s. The symbols of the columns and the carries out of its last word move to the next lane by
one shuffle each. The carries out of the last lane go to the strip below through memory, in cells of
32 columns:

    cell   uint64   63..32 the strip that may read it   31..0 carries, the first column's in bit 31

There is one cell for 32 columns, shared by all strips: strip k waits until it finds k in a cell,
and later writes its own carries there with k + 1. So a strip runs about 160 columns behind the one
above it, memory is 8 bytes per 32 columns, and no launch, fence or barrier separates the strips.
Warps take strips in the order of a list (``tickets``) in which a strip comes after the one above
it, so running warps can always proceed, however many fit on the GPU.

A pass is one or more stretches of columns; at the end of each the warp drains its lanes and writes
its rows' bits to the pool. Columns that pad a cell, and those of lanes that have not begun or have
ended, have a symbol whose match words are 0: they change nothing and carry nothing.

Integer operations for 4 columns: 4 (3 W + 1), and 3 for lane 0 and outgoing carries, so 3.2 per
word (32 cells) with W = 10; a multiprocessor does 64 per cycle. Addresses, carries out and shifts
run beside them as multiplications. Loads: 4 bytes per word, of 128 per cycle. The inner loop has
two steps for high strips, and a whole cell's eight for low ones: a longer loop is slower for the
former, a shorter one for the latter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numba.core import types

from gpu.card.intrinsics import ALL_LANES, as_signed, cuda, device_function, load_word
from gpu.lcs.word_operations import (
    address_of,
    group_words,
    read_cell,
    rows_of,
    scale_of,
    step,
    symbol_words,
    write_cell,
)

PAIRS = 4  # pairs of steps for the columns of a cell

EMPTY_CELLS = 5
"""Empty cells after the columns of a stretch: lane 31 is four behind lane 0, and columns are
fetched one ahead.
"""

STRETCHES = 4  # the most stretches of columns in a pass

# fields of a pass
ROW, ROWS, CELL, AT, STRIDE, BACKWARD = range(6)
STRETCH = 6  # field of the first stretch's cells (of 32 columns); 0 after the last
FIELDS = STRETCH + STRETCHES


@dataclass(frozen=True, slots=True)
class GridShape:
    """Words per lane, most symbols, warps per block."""

    words: int
    symbols: int
    warps: int

    @property
    def strip_rows(self) -> int:
        """Rows of a strip."""
        return 1024 * self.words

    @property
    def table_words(self) -> int:
        """Words of shared memory per warp: the match words of every symbol and of "none"."""
        return symbol_words(self.words) * (self.symbols + 1)

    @property
    def scale(self) -> int:
        """The factor by which the symbols of columns are multiplied."""
        return scale_of(self.symbols)


SHAPES = (
    GridShape(words=4, symbols=4, warps=1),
    GridShape(words=10, symbols=4, warps=1),
    GridShape(words=4, symbols=31, warps=1),
    GridShape(words=1, symbols=255, warps=1),
)
"""The shapes of compiled kernels: DNA in strips of two heights, small and large alphabets.

A column's symbol is a byte, and one value of it stands for none.
"""


def systolic(shape: GridShape) -> Callable[..., None]:
    """The kernel for a shape: ``shape.warps`` warps per block, any number of blocks, one launch.

    planes: uint32[bits, words], bit r % 32 of word r // 32 is that bit of row r's symbol. symbols:
    their number. pairs: PAIRS; as an argument it makes the compiler keep the loop. columns: uint64,
    PAIRS per cell, as ``arrange`` in prepare.py writes them. passes: int64[passes, FIELDS].
    tickets: uint32[strips, 2], pass and strip. taken: uint32[1], 0. cells: uint64, all 0. pool:
    uint32, receives the results (H = ~V), stretch by stretch from AT on, the last first: STRIDE
    words each, a multiple of 4.
    """
    words = shape.words
    warps = shape.warps
    group = group_words(words)
    table_words = shape.table_words
    looped = words > 4
    of_symbol = symbol_words(words)
    scale = shape.scale
    four_columns = step(words, scale)
    ones = (np.uint32(0xFFFFFFFF),) * words
    size = warps * table_words
    strip_words = np.int64(32 * words)

    @device_function
    def tabulate(table, base, lane, planes, symbols, passes, which, first_word):
        """Store the match words of a lane's rows for every symbol, and 0 for "none"."""
        backward = passes[which, BACKWARD] != 0
        for word in range(words):
            row = 32 * (first_word + word)
            row = passes[which, ROW] - row if backward else passes[which, ROW] + row
            at = base + 32 * group * (word // group) + lane * group + word % group
            for symbol in range(symbols):
                match = np.uint32(0xFFFFFFFF)
                for p in range(planes.shape[0]):
                    plane = rows_of(planes[p], 0, planes.shape[1], row, backward)
                    if not (symbol >> p) & 1:
                        plane = np.uint32(~plane)
                    match = np.uint32(match & plane)
                table[at + of_symbol * symbol] = match
            table[at + of_symbol * symbols] = np.uint32(0)

    @device_function
    def low(pair):
        return np.uint32(pair & np.uint64(0xFFFFFFFF))

    @device_function
    def high(pair):
        return np.uint32(pair >> np.uint64(32))

    @device_function
    def shifted(word, by):
        return np.uint32(word << np.uint32(by))

    @device_function
    def advance(table, lane, address, new, entering, current, leaving, gathered, v):
        """One step of the warp: (symbols, carries out, the last 8 steps' carries out, words)."""
        above = np.uint32(cuda.shfl_up_sync(ALL_LANES, as_signed(shifted(leaving, 28)), 1))
        current = np.uint32(cuda.shfl_up_sync(ALL_LANES, as_signed(current), 1))
        if lane == 0:
            above = entering
            current = new
        after = four_columns(table, current, address, above, v)
        return current, after[0], np.uint32(shifted(gathered, 4) | after[0]), after[1:]

    @device_function
    def two_steps(table, lane, address, columns, pair, state):
        """Two steps; fetches the columns of the pair of steps after the next one."""
        now, coming, entering, current, leaving, gathered, _, v = state
        following = load_word(columns, pair + 2)
        current, leaving, earlier, v = advance(
            table, lane, address, low(now), entering, current, leaving, gathered, v
        )
        current, leaving, gathered, v = advance(
            table, lane, address, high(now), shifted(entering, 4), current, leaving, earlier, v
        )
        return coming, following, shifted(entering, 8), current, leaving, gathered, earlier, v

    def systolic(planes, symbols, pairs, columns, passes, tickets, taken, cells, pool):
        table = cuda.shared.array(size, types.uint32)
        lane = cuda.threadIdx.x & 31
        base = (cuda.threadIdx.x >> 5) * table_words
        address = np.uint32(address_of(table, base + lane * group))
        empty = np.uint32(0)
        nothing = np.uint32(symbols * np.uint32(0x01010101 * scale))
        while True:
            ticket = np.uint32(0)
            if lane == 0:
                ticket = np.uint32(cuda.atomic.add(taken, 0, np.uint32(1)))
            ticket = np.uint32(cuda.shfl_sync(ALL_LANES, as_signed(ticket), 0))
            if ticket >= tickets.shape[0]:
                break
            which = tickets[ticket, 0]
            strip = np.int64(tickets[ticket, 1])
            # the match words of this lane's rows
            first_word = strip * strip_words + lane * words
            tabulate(table, base, lane, planes, symbols, passes, which, first_word)
            cuda.syncwarp()
            v = ones
            cell = passes[which, CELL]
            for stretch in range(STRETCHES - 1, -1, -1):
                count = passes[which, STRETCH + stretch]
                if count == 0:
                    continue
                given = read_cell(cells, cell)
                state = (
                    load_word(columns, PAIRS * cell), load_word(columns, PAIRS * cell + 1),
                    empty, nothing, empty, empty, empty, v,
                )  # fmt: skip
                # four more cells, empty for lane 0, until the last lane is done
                for at in range(count + EMPTY_CELLS - 1):
                    entering = empty
                    if at < count:
                        while cuda.any_sync(ALL_LANES, np.int64(given >> np.uint64(32)) != strip):
                            given = read_cell(cells, cell + at)
                        entering = np.uint32(given & np.uint64(0xFFFFFFFF))
                    if at + 1 < count:
                        given = read_cell(cells, cell + at + 1)
                    now, coming, _, current, leaving, gathered, earlier, v = state
                    state = now, coming, entering, current, leaving, gathered, earlier, v
                    pair = PAIRS * (cell + at)
                    if looped:
                        for other in range(pair, pair + pairs):
                            state = two_steps(table, lane, address, columns, other, state)
                    else:
                        state = two_steps(table, lane, address, columns, pair, state)
                        pair += 1
                        state = two_steps(table, lane, address, columns, pair, state)
                        pair += 1
                        state = two_steps(table, lane, address, columns, pair, state)
                        pair += 1
                        state = two_steps(table, lane, address, columns, pair, state)
                    # lane 31 is 31 steps behind: one step ago it completed the 8 steps of a cell
                    if lane == 31 and at >= EMPTY_CELLS - 1:
                        write_cell(
                            cells,
                            cell + at - (EMPTY_CELLS - 1),
                            (np.uint64(strip + 1) << np.uint64(32)) | np.uint64(state[6]),
                        )
                v = state[7]
                cell += count + EMPTY_CELLS
                stride = passes[which, STRIDE]
                out = passes[which, AT] + stretch * stride
                for word in range(words):
                    if first_word + word < stride:
                        pool[out + first_word + word] = ~v[word]

    return systolic
