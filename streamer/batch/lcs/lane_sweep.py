"""One step of a systolic array of vector lanes: the inner loop of the CPU's default method.

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
  for 63 rows x lanes: three of three inputs (``vpternlogq``), two subtractions, a shift. At W = 8
  and 8 lanes H, the carry and half of the planes fill the 32 registers; the rest is read from L1.
- Without it, for up to four symbols, from a table: the 4 lanes' symbols form a byte that indexes
  the match words of all lanes (``operands.py``). Also 6 operations, one load, and only H is in
  registers. Lane l is at column t - LAG l then: with two carries of each lane in flight the steps
  overlap, and the chain of carries through the words of a step is no bottleneck.

More symbols without three-input logic use the planes and two more operations a plane; their masks
are complemented (INVERTED), so U needs no NOT, which LLVM would trade for an addition.

What it replaces, a word at a time: ``v = (v + (v & m) + carry) | (v & ~m)`` (Listing 4).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from trie.cpu import llvm
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
            together = builder.zext(builder.load(builder.gep(symbols_at, [step])), I64)
            entry = builder.gep(rows_at, [builder.mul(together, I64(count * LANES))])
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
