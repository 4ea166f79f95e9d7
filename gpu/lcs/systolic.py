"""Passes for the longest common subsequence by systolic warps in a persistent grid.

    strip 0   1024 W rows   lane 0 ... lane 31, W words of 32 rows each   | all columns of the pass
    strip 1   the next                                                    | from left to right

A lane does four columns per step, ``step`` below; lane l is at columns 4 (s - l) ..
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

``step`` is written in PTX, because the carries of its additions stay in the carry flag. Its
operations for each column and lane, W words of 32 rows:

    address    dp4a                 the column's byte, weighted, is added to the lane's address
    matches    ld.shared            one for 4 words, without bank conflicts: 16 bytes a lane,
                                    adjacent
    carry in   add.cc x, x, x       the topmost bit of x falls into the carry flag, the next moves
                                    up
    a word     and, addc.cc, lop3   u = v & m; s = v + u + carry; v = s | (v & ~m)
    carry out  addc o, o, o         o moves up, the carry flag comes in

So 3 W + 1 operations of the integer units for 32 W cells; the dot product and the carries out run
in parallel on the multipliers. The inner loop has two steps for high strips, eight for low ones.

A table is cut in two at the row where the lengths from both corners have the largest sum. If f(r)
is the sum for the first r rows, f(r + 1) - f(r) is the bit of row r in the result from the first
corner minus that in the result from the last: a walk up and down, whose highest point is the cut. A
block takes a table, its threads equal numbers of adjacent words.

The input of the systolic kernel:

    planes    uint32[bits, words]   bit r % 32 of word r // 32: that bit of row r's symbol;
                                    computed once
    columns   uint32, 8 for a cell of 32 columns; a byte a column, the first lowest: the symbol
              times ``scale_of``

The columns of a level of the division are laid out for each of its passes, forwards or backwards,
padded to whole cells and followed by empty cells, so that the kernel needs no bounds checks.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types

from gpu.card.intrinsics import (
    ALL_LANES,
    SIMULATED,
    as_signed,
    bit_count,
    cuda,
    device_function,
    funnel,
    instruction,
    load_word,
    on_element,
    reverse_word,
)

COLUMNS = 4  # columns of one step: their symbols are the bytes of a word, the first lowest


def group_words(words: int) -> int:
    """Words of a lane that are adjacent in shared memory and loaded at once."""
    return min(words, 4)


def symbol_words(words: int) -> int:
    """Words of shared memory for the match words of a symbol: all lanes', in whole groups."""
    group = group_words(words)
    return 32 * group * -(-words // group)


def scale_of(symbols: int) -> int:
    """The factor of a symbol in a column's byte, so that a byte reaches every symbol's words."""
    return 8 if 8 * symbols <= 255 else 1


def step_assembly(words: int, scale: int) -> str:
    """The PTX of ``step``: $0 carries out, then the words; symbols, address, carries in, the
    words."""
    group = group_words(words)
    weight = 4 * symbol_words(words) // scale
    assert weight <= 255
    new = [f"${1 + i}" for i in range(words)]
    symbols, address, carries = (f"${words + 1 + i}" for i in range(3))
    old = [f"${words + 4 + i}" for i in range(words)]

    def match(column: int, word: int) -> str:
        return f"m{column}_{word}"

    def load(column: int) -> list[str]:
        lines = [f"dp4a.u32.u32 t, {symbols}, {weight << (8 * column):#x}, {address};"]
        for first in range(0, words, group):
            named = [match(column, i) for i in range(first, min(first + group, words))]
            vector = {1: "", 2: ".v2", 4: ".v4"}[len(named)]
            target = f"{{{', '.join(named)}}}" if vector else named[0]
            lines.append(f"ld.shared{vector}.u32 {target}, [t+{128 * first}];")
        return lines

    matches = [match(column, i) for column in range(COLUMNS) for i in range(words)]
    lines = [f".reg .b32 x, t, {', '.join(f'u{i}, s{i}' for i in range(words))};"]
    lines += [f".reg .b32 {', '.join(matches)};", f"mov.b32 x, {carries};", "mov.b32 $0, 0;"]
    lines += load(0)
    for column in range(COLUMNS):
        if column + 1 < COLUMNS:
            # issued before the previous column's work, which hides the load
            lines += load(column + 1)
        v = old if column == 0 else new
        m = [match(column, i) for i in range(words)]
        lines += [f"and.b32 u{i}, {v[i]}, {m[i]};" for i in range(words)]
        lines.append("add.cc.u32 x, x, x;")
        lines += [f"addc.cc.u32 s{i}, {v[i]}, u{i};" for i in range(words)]
        lines.append("addc.u32 $0, $0, $0;")
        lines += [f"lop3.b32 {new[i]}, s{i}, {v[i]}, {m[i]}, 0xF4;" for i in range(words)]
    return "{ " + " ".join(lines) + " }"


@cache
def step(words: int, scale: int) -> Any:
    """step(table, symbols, address, carries, v) -> (carries out, v...): four columns of W words.

    table: the match words in shared memory (only the simulator reads it). symbols: ``scale`` times
    the columns' symbols, one byte each. address: of the lane's words of symbol 0.
    carries: bit 31 enters at the first column, ..., bit 28 at the fourth; outgoing carries are
    returned in bits 3 to 0. v: a tuple of W uint32, 0 where the length grows.
    """
    if SIMULATED:

        def simulated(table: Any, symbols: Any, address: Any, carries: Any, v: Any) -> Any:
            ones = (1 << (32 * words)) - 1
            whole = sum(int(word) << (32 * i) for i, word in enumerate(v))
            out = 0
            for column in range(COLUMNS):
                symbol = (int(symbols) >> (8 * column) & 255) // scale
                at = int(address) // 4 + symbol_words(words) * symbol
                m = sum(
                    int(table[at + 32 * (i // 4 * 4) + i % 4]) << (32 * i) for i in range(words)
                )
                total = whole + (whole & m) + (int(carries) >> (31 - column) & 1)
                out = out << 1 | total >> (32 * words)
                whole = (total | (whole & ~m)) & ones
            return (
                np.uint32(out),
                *(np.uint32(whole >> (32 * i) & 0xFFFFFFFF) for i in range(words)),
            )

        return simulated
    # volatile: it reads shared memory, which the compiler cannot see
    assembled = instruction(
        step_assembly(words, scale),
        ("u32",) * (words + 1),
        ("u32",) * (words + 3),
        lambda *_: None,
        volatile=True,
    )

    @device_function
    def step(table, symbols, address, carries, v):
        return assembled(symbols, address, carries, *v)

    return step


if SIMULATED:

    def read_cell(cells: Any, index: Any) -> Any:
        """cells[index] (uint64) as it is in memory now."""
        return cells[int(index)]

    def write_cell(cells: Any, index: Any, value: Any) -> None:
        """Write a cell at once, for every warp of the GPU."""
        cells[int(index)] = value

    def element_address(table: Any, index: Any) -> Any:
        """The address in shared memory of ``table[index]``."""
        return np.uint32(4 * int(index))

else:
    from numba.cuda.extending import intrinsic

    @intrinsic
    def read_cell(typingctx: Any, cells: Any, index: Any) -> Any:
        """cells[index] (uint64) as it is in memory now."""
        load = "ld.relaxed.gpu.global.u64 $0, [$1];"
        return types.uint64(cells, index), on_element(load, "=l,l", ir.IntType(64), 3, effect=True)

    @intrinsic
    def write_cell(typingctx: Any, cells: Any, index: Any, value: Any) -> Any:
        """Write a cell at once, for every warp of the GPU."""
        store = "st.relaxed.gpu.global.u64 [$0], $1;"
        codegen = on_element(store, "l,l", ir.VoidType(), 3, effect=True)
        return types.void(cells, index, types.uint64), codegen

    @intrinsic
    def element_address(typingctx: Any, table: Any, index: Any) -> Any:
        """The address in shared memory of ``table[index]``."""
        convert = "{ .reg .u64 t; cvta.to.shared.u64 t, $1; cvt.u32.u64 $0, t; }"
        return types.uint32(table, index), on_element(convert, "=r,l", ir.IntType(32), 2)


@device_function
def word_or_zero(words, first, count, index):
    """words[first + index], 0 outside of [0, count)."""
    if index < 0 or index >= count:
        return np.uint32(0)
    return np.uint32(words[first + index])


@device_function
def rows_from(words, first, count, row):
    """The 32 bits from ``row`` (any int64) on of a bit-vector of ``count`` words at
    words[first]."""
    index = row >> 5
    low = word_or_zero(words, first, count, index)
    high = word_or_zero(words, first, count, index + 1)
    return funnel(low, high, np.uint32(row & 31))


@device_function
def rows_of(words, first, count, row, backward):
    """The 32 bits from ``row`` on, or with ``backward`` those before it, nearest first."""
    if backward:
        return reverse_word(rows_from(words, first, count, row - 32))
    return rows_from(words, first, count, row)


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
    PAIRS per cell, as ``arrange`` writes them. passes: int64[passes, FIELDS].
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
        address = np.uint32(element_address(table, base + lane * group))
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
                value = read_cell(cells, cell)
                state = (
                    load_word(columns, PAIRS * cell), load_word(columns, PAIRS * cell + 1),
                    empty, nothing, empty, empty, empty, v,
                )  # fmt: skip
                # four more cells, empty for lane 0, until the last lane is done
                for at in range(count + EMPTY_CELLS - 1):
                    entering = empty
                    if at < count:
                        while cuda.any_sync(ALL_LANES, np.int64(value >> np.uint64(32)) != strip):
                            value = read_cell(cells, cell + at)
                        entering = np.uint32(value & np.uint64(0xFFFFFFFF))
                    if at + 1 < count:
                        value = read_cell(cells, cell + at + 1)
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


CUT_THREADS = 512
MOST_THREADS = 1024

# fields of a table
TABLE_FIRST, TABLE_LAST, TABLE_ROWS = range(3)


def cut(pool: Any, tables: Any, cuts: Any) -> None:
    """Find the cut of every table; one block per table.

    cuts: int64[tables, 2], the first best row and the length of the subsequence. pool: uint32.
    tables: int64[tables, 3], the words at which both results begin, and the rows.
    """
    ends = cuda.shared.array(MOST_THREADS, types.int64)
    highs = cuda.shared.array(MOST_THREADS, types.int64)
    rows_at = cuda.shared.array(MOST_THREADS, types.int64)
    counts = cuda.shared.array(MOST_THREADS, types.int64)
    table = cuda.blockIdx.x
    thread = cuda.threadIdx.x
    first = tables[table, TABLE_FIRST]
    last = tables[table, TABLE_LAST]
    rows = tables[table, TABLE_ROWS]
    words = (rows + 31) >> 5
    each = (words + cuda.blockDim.x - 1) // cuda.blockDim.x
    here = np.int64(0)
    high = np.int64(0)
    high_at: Any = np.int64(-1)
    count: Any = np.int64(0)
    for word in range(thread * each, min((thread + 1) * each, words)):
        valid = np.uint32(0xFFFFFFFF)
        if 32 * word + 32 > rows:
            valid = np.uint32((np.uint32(1) << np.uint32(rows & 31)) - np.uint32(1))
        up = np.uint32(pool[first + word] & valid)
        # row r is bit rows - 1 - r of the result from the last corner
        down = np.uint32(rows_of(pool, last, words, rows - 32 * word, True) & valid)
        count += np.int64(bit_count(down))
        if up != down:
            for bit in range(32):
                here += np.int64((up >> np.uint32(bit)) & np.uint32(1))
                here -= np.int64((down >> np.uint32(bit)) & np.uint32(1))
                if here > high:
                    high = here
                    high_at = 32 * word + bit + 1
    ends[thread] = here
    highs[thread] = high
    rows_at[thread] = high_at
    counts[thread] = count
    cuda.syncthreads()
    if thread == 0:
        total = np.int64(0)
        best = np.int64(0)
        best_at = np.int64(0)
        length = np.int64(0)
        for other in range(cuda.blockDim.x):
            if rows_at[other] >= 0 and total + highs[other] > best:
                best = total + highs[other]
                best_at = rows_at[other]
            total += ends[other]
            length += counts[other]
        cuts[table, 0] = best_at
        cuts[table, 1] = length + best


THREADS = 128

# fields of a stretch of columns
STRETCH_CELL, STRETCH_FIRST, STRETCH_COUNT, STRETCH_STEP = range(4)


def planes(symbols: Any, out: Any) -> None:
    """Bit planes of symbols (uint8) to out: uint32[bits, ceil(symbols / 32)]; a warp per word.

    THREADS is a multiple of 32.
    """
    word = np.int64(cuda.grid(1)) >> 5
    lane = cuda.threadIdx.x & 31
    if word < out.shape[1]:
        at = 32 * word + lane
        symbol = np.uint32(0)
        if at < symbols.size:
            symbol = np.uint32(symbols[at])
        for p in range(out.shape[0]):
            bits = cuda.ballot_sync(ALL_LANES, (symbol >> np.uint32(p)) & np.uint32(1))
            if lane == 0:
                out[p, word] = np.uint32(bits)


def arrange(symbols: Any, stretches: Any, none: Any, scale: Any, columns: Any, cells: Any) -> None:
    """Lay out the columns of stretches and clear their cells; one warp per cell.

    symbols: uint8, the second sequence. stretches: int64[stretches, 4], ascending by their first
    cell: that cell, the index of the first column's symbol, the number of columns, the step 1 or
    -1. The symbol ``none`` fills the rest. All symbols are multiplied by ``scale``.
    """
    cell = np.int64(cuda.grid(1)) >> 5
    lane = cuda.threadIdx.x & 31
    if cell < cells.size:
        low = 0
        high = stretches.shape[0] - 1
        while low < high:
            middle = (low + high + 1) >> 1
            if stretches[middle, STRETCH_CELL] <= cell:
                low = middle
            else:
                high = middle - 1
        at = 32 * (cell - stretches[low, STRETCH_CELL]) + lane
        symbol = np.uint32(none)
        if at < stretches[low, STRETCH_COUNT]:
            symbol = np.uint32(
                symbols[stretches[low, STRETCH_FIRST] + stretches[low, STRETCH_STEP] * at]
            )
        symbol = np.uint32(symbol * scale)
        # the symbols of four lanes in one word
        beside = np.uint32(cuda.shfl_down_sync(ALL_LANES, as_signed(symbol), 1))
        symbol = np.uint32(symbol | np.uint32(beside << np.uint32(8)))
        beside = np.uint32(cuda.shfl_down_sync(ALL_LANES, as_signed(symbol), 2))
        symbol = np.uint32(symbol | np.uint32(beside << np.uint32(16)))
        if lane & 3 == 0:
            columns[8 * cell + (lane >> 2)] = symbol
        if lane == 0:
            cells[cell] = np.uint64(0)
