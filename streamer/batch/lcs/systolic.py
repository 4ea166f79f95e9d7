"""The CPU's default method: bit-vectors in a systolic array of vector lanes.

The rows of a pass are cut into blocks of LANES x W words. A block sweeps over a stretch of columns
with its words in registers; the carries out of its last lane, a byte per column, enter the next
block.

The operands of ``sweep`` are rows as planes or a table, and columns as masks or lane bytes, which
hold the symbols of all lanes. The planes P_p of a block's rows are made once, one bit of a symbol
each. A table has the match words of W words of four lanes for each of the 256 combinations of four
symbols of two bits, 64 KB for W = 8, rebuilt from the planes for every stretch of columns.

One step of the array:

    lane l holds W words of 63 rows; at step t it is at column t - l

             step t      step t+1
    lane 0   column t    t+1         A carry leaves a lane's last word and enters the first word of
    lane 1   column t-1  t           the next lane a step later: that lane is at the column then.
    lane 2   column t-2  t-1

Crochemore et al.'s bit-vector V is stored complemented, H = ~V: bit i is set where the length grows
from row i to i+1. A word has 63 rows; its top bit is 0 and receives the carry, because vectors have
no carry flag.

    S = H - U - carry            U: the rows that match and have H = 0
    carry = S >> 63              V + U + carry, complemented
    H = S & (H | U)

Which rows match is found in one of two ways:

- With three-input logic (AVX-512), from planes P_p (bit p of the row's symbol) and C_p (bit p of
  the column's symbol in every bit; the top bits of C_0 are 1 and those of P_0 are 0, so that U has
  no top bit): x = H | (P_0 ^ C_0) | ..., U = ~(x | (P_last ^ C_last)). With two planes 6 operations
  for 63 rows x lanes: three of three inputs (``vpternlogq``), two subtractions, a shift.
- Without it, for up to four symbols, from a table: the 4 lanes' symbols form a byte that indexes
  the match words of all lanes: 6 operations and a load. Lane l is at column t - LAG l then, so
  that two carries of each lane are in flight.

More symbols without three-input logic use the planes and two more operations a plane; their masks
are complemented (INVERTED), so U needs no NOT, which LLVM would trade for an addition.

What it replaces, a word at a time: ``v = (v + (v & m) + carry) | (v & ~m)`` (Listing 4).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from streamer.batch.lcs.passes import Part
from streamer.batch.lcs.symbols import Pair
from trie.cpu import llvm
from trie.cpu.jit import njit
from trie.cpu.llvm import I8, I32, I64, bitwise, constant, has_feature, shuffle, spread

ROWS = 63  # rows in a word
TERNARY = has_feature("avx512f")
LANES = 8 if TERNARY else 4
INVERTED = not TERNARY  # whether ``sweep`` takes complemented masks C_p
TABLE_SYMBOLS = 0 if TERNARY else 4  # the most symbols for which ``sweep`` is given a table
LAG = 2  # columns by which a lane trails the previous one if there is a table, else 1
_VECTOR = ir.VectorType(I64, LANES)


def _matching(builder: Any, h: Any, planes: list[Any], symbol: list[Any]) -> Any:
    """U: the rows whose symbol is the column's and whose H is 0."""
    if TERNARY:
        unlike = h
        for plane, mask in zip(planes[:-1], symbol[:-1], strict=True):
            unlike = bitwise(builder, lambda x, p, c: x | (p ^ c), unlike, plane, mask)
        # one instruction: LLVM would replace the NOT by more additions
        return bitwise(builder, lambda x, p, c: ~(x | (p ^ c)), unlike, planes[-1], symbol[-1])
    like = builder.not_(h)
    for plane, mask in zip(planes, symbol, strict=True):
        like = builder.and_(like, builder.xor(plane, mask))
    return like


def _column(
    builder: Any, heights: list[Any], growing: Callable[[int, Any], Any], carry: Any
) -> tuple[list[Any], Any]:
    """Return the words of every lane after one more column, and the carries out of the last word.

    growing(word, H) is U.
    """
    after = []
    for word, h in enumerate(heights):
        u = growing(word, h)
        s = builder.sub(builder.sub(h, u), carry)
        carry = builder.lshr(s, constant(_VECTOR, ROWS))
        after.append(bitwise(builder, lambda s, h, u: s & (h | u), s, h, u))
    return after, carry


@intrinsic(prefer_literal=True)
def _sweep(
    typingctx: Any, state: Any, rows: Any, symbols: Any, carries: Any, columns: Any, first: Any,
    stop: Any, words: Any, bits: Any, edge: Any,
) -> Any:  # fmt: skip
    """Run steps [first, stop) of a block of lanes over ``columns`` columns, in place.

    state: uint64[(W + lag) * LANES], H by word and lane, then the carries in flight. carries:
    uint8[columns], those into lane 0 at each column, replaced by those out of the last lane.
    ``words`` and ``bits`` are tuples whose lengths are W and the number of planes; no ``bits``:
    rows are a table. ``edge`` is True (a literal) for steps at which some lanes are outside the
    columns; their H stays. A whole sweep is steps 0 to columns + lag * (LANES - 1).

    rows: uint64[bits * W * LANES], the planes; symbols: uint64[bits * (columns + 2 LANES - 2)], the
    masks C_p of the columns in reverse, LANES - 1 of padding at both ends; the lag is 1.
    Or rows: uint64[256 * W * LANES], the match words by the lanes' symbols, two bits each, lane 0's
    lowest; symbols: uint8[columns + LAG * (LANES - 1)], the lanes' symbols at each step.
    """
    count = len(words)
    depth = len(bits)
    outside = bool(edge.literal_value)
    lag = 1 if depth else LAG
    signature = types.void(
        state, rows, symbols, carries, types.int64, types.int64, types.int64, words, bits, edge
    )

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointers = [
            context.make_array(signature.args[i])(context, builder, args[i]).data for i in range(4)
        ]
        total, begin, end = args[4:7]

        def load(base: Any, offset: Any) -> Any:
            return llvm.load(builder, base, offset, _VECTOR)

        state_at, rows_at, symbols_at, carries_at = pointers
        loaded = [load(state_at, I64(i * LANES)) for i in range(count + lag)]
        plane_words = [
            [load(rows_at, I64((p * count + i) * LANES)) for i in range(count)]
            for p in range(depth)
        ]

        def by_planes(step: Any) -> Callable[[int, Any], Any]:
            stride = builder.add(total, I64(2 * LANES - 2))
            back = builder.sub(builder.add(total, I64(LANES - 2)), step)
            masks = [
                load(symbols_at, builder.add(back, builder.mul(stride, I64(p))))
                for p in range(depth)
            ]
            return lambda word, h: _matching(builder, h, [p[word] for p in plane_words], masks)

        def by_table(step: Any) -> Callable[[int, Any], Any]:
            row = builder.zext(builder.load(builder.gep(symbols_at, [step])), I64)
            entry = builder.gep(rows_at, [builder.mul(row, I64(count * LANES))])
            return lambda word, h: builder.and_(load(entry, I64(word * LANES)), builder.not_(h))

        before = builder.block
        head = builder.append_basic_block("lanes.head")
        body = builder.append_basic_block("lanes.step")
        done = builder.append_basic_block("lanes.done")
        builder.branch(head)

        builder.position_at_end(head)
        step = builder.phi(I64)
        step.add_incoming(begin, before)
        current = []
        for value in loaded:
            phi = builder.phi(_VECTOR)
            phi.add_incoming(value, before)
            current.append(phi)
        builder.cbranch(builder.icmp_signed("<", step, end), body, done)

        builder.position_at_end(body)
        # lanes beyond the last column ignore the carry, so any column's will do
        at = (
            builder.select(builder.icmp_signed("<", step, total), step, I64(0)) if outside else step
        )
        enters = builder.zext(builder.load(builder.gep(carries_at, [at])), I64)
        first_lane = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), enters, I32(0))
        shifted = [0, *range(LANES, 2 * LANES - 1)]
        carry = shuffle(builder, first_lane, current[count], shifted)
        growing = by_planes(step) if depth else by_table(step)
        after, carry = _column(builder, current[:count], growing, carry)
        leaves = builder.trunc(builder.extract_element(carry, I32(LANES - 1)), I8)
        column_out = builder.sub(step, I64(lag * (LANES - 1)))
        where = builder.gep(carries_at, [column_out])
        if outside:
            numbers = constant(_VECTOR, *(lag * i for i in range(LANES)))
            column = builder.sub(spread(builder, step, _VECTOR), numbers)
            inside = builder.icmp_unsigned("<", column, spread(builder, total, _VECTOR))
            after = [
                builder.select(inside, new, old)
                for new, old in zip(after, current[:count], strict=True)
            ]
            with builder.if_then(builder.icmp_signed(">=", column_out, I64(0))):
                builder.store(leaves, where)
        else:
            builder.store(leaves, where)
        last = builder.block
        step.add_incoming(builder.add(step, I64(1)), last)
        for phi, value in zip(current, [*after, *current[count + 1 :], carry], strict=True):
            phi.add_incoming(value, last)
        builder.branch(head)

        builder.position_at_end(done)
        for i, value in enumerate(current):
            llvm.store(builder, value, state_at, I64(i * LANES))
        return context.get_dummy_value()

    return signature, generate


sweep: Any = _sweep  # ``_sweep`` as called: an intrinsic's first parameter is implicit


BEHIND = LAG * (LANES - 1)  # columns by which the last lane trails the first if there is a table
TABLE_ROWS = 4**LANES  # rows of a table: a two-bit symbol for each lane


@njit(cache=True, nogil=True)
def pack(a, first, step, rows, words, bits, planes):
    """Pack rows ``a[first], a[first + step], ...`` into planes; rows beyond the last are symbol 0.

    planes: uint64[blocks, bits * words * LANES]. Matches in rows beyond the last are harmless:
    carries only go to later rows.
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
def unpack(state, words, row, rows, pool, at):
    """Write the rows' bits from ``row`` on into the pool, 32 per word; lower bits stay."""
    out = at + (row >> 5)
    filled = row & 31
    pending = np.uint64(0)
    if filled:
        pending = np.uint64(pool[out]) & ((np.uint64(1) << np.uint64(filled)) - np.uint64(1))
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
                # up to 31 bits are pending, so take the word in two halves
                for shift in range(0, count, 32):
                    half = (value >> np.uint64(shift)) & np.uint64(0xFFFFFFFF)
                    pending |= half << np.uint64(filled)
                    filled += min(32, count - shift)
                    if filled >= 32:
                        pool[out] = np.uint32(pending & np.uint64(0xFFFFFFFF))
                        out += 1
                        pending >>= np.uint64(32)
                        filled -= 32
    if filled:
        pool[out] = np.uint32(pending & np.uint64(0xFFFFFFFF))


@njit(cache=True, nogil=True)
def masks(b, bits, symbols):
    """Make the masks C_p of the columns ``b``, last column first; see ``sweep``."""
    columns = b.size
    flip = ~np.uint64(0) if INVERTED else np.uint64(0)
    stride = columns + 2 * LANES - 2
    top = np.uint64(1) << np.uint64(ROWS)
    for p in range(bits):
        of_bit = symbols[p * stride : (p + 1) * stride]
        of_bit[: LANES - 1] = top ^ flip
        of_bit[stride - LANES + 1 :] = top ^ flip
        guard = top if p == 0 else np.uint64(0)
        inner = of_bit[LANES - 1 : stride - LANES + 1]
        shift = np.uint8(p)
        for c in range(columns):
            bit = np.uint64((b[columns - 1 - c] >> shift) & np.uint8(1))
            inner[c] = ((np.uint64(0) - bit) | guard) ^ flip


@njit(cache=True, nogil=True)
def beside(b, pair):
    """Make the symbols (below 4) of all lanes at each step: two bits per lane, lane 0 lowest.

    b: uint8[columns], pair: uint8[columns + BEHIND]. Lanes outside the columns have symbol 0.
    """
    columns = b.size
    pair[:columns] = b
    pair[columns:] = 0
    for lane in range(1, LANES):
        later = pair[LAG * lane : LAG * lane + columns]
        for c in range(columns):
            later[c] |= np.uint8(b[c] << np.uint8(2 * lane))


@njit(cache=True, nogil=True)
def tabulate(planes, bits, words, matches, table):
    """Build the match words of a block's rows for the combined symbols of four lanes.

    planes: uint64[bits * words * LANES], at most two bits. matches: uint64[4 * words * LANES] is
    overwritten. table: uint64[TABLE_ROWS * words * LANES].
    """
    vectors = words * LANES
    rows = (np.uint64(1) << np.uint64(ROWS)) - np.uint64(1)
    for i in range(vectors):
        low = planes[i]
        high = planes[vectors + i] if bits > 1 else np.uint64(0)
        matches[i] = ~low & ~high & rows
        matches[vectors + i] = low & ~high & rows
        matches[2 * vectors + i] = ~low & high
        matches[3 * vectors + i] = low & high
    for symbols in range(TABLE_ROWS):
        entry = table[symbols * vectors : (symbols + 1) * vectors]
        for lane in range(LANES):
            of_symbol = matches[((symbols >> (2 * lane)) & 3) * vectors :]
            for word in range(words):
                entry[word * LANES + lane] = of_symbol[word * LANES + lane]


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
