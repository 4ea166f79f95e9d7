"""The instructions of the bit-sliced edit distance that numba has no name for (``words``).

One cell of the matrix D (WsPASM paper, equation 1) in differences, for 512 segments at once:

    vp, vm   D[i, j-1] - D[i-1, j-1] is +1, -1        hp, hm   D[i-1, j] - D[i-1, j-1] is +1, -1
    z        D[i, j] = D[i-1, j-1]: the letters are equal, or vm, or hm
    hp' = vm | ~(z | vp)   hm' = z & vp               vp' = hm | ~(z | hp)   vm' = z & hp

Five operations with three-input logic (AVX-512), eleven without.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from streamer.batch.asm.lane_words import (
    INDEX,
    INT64,
    LINE,
    MAJORITY,
    ONES,
    OR,
    OR_NEITHER,
    ROW,
    WORD,
    WORDS,
    XOR,
    Memory,
    cgutils,
    fetch,
    intrinsic,
    logic,
    plus,
)

COLUMNS = 4
"""Text positions that ``cells`` and ``count`` take at once: a row is loaded once for four."""


@intrinsic
def cells(
    typingctx: Any,
    state: Any,
    rows: Any,
    letters: Any,
    first: Any,
    equal: Any,
    equal_at: Any,
    stride: Any,
    deltas: Any,
    deltas_at: Any,
    top: Any,
    text: Any,
    ahead: Any,
) -> Any:
    """``rows`` rows of COLUMNS columns of D.

    state: (vp, vm) a row, from row ``first`` on. letters int64[]: where row i's letter stands among
    the words of a column in ``equal``, whose columns lie ``stride`` apart from ``equal_at`` on.
    deltas: (hp, hm) a column from ``deltas_at`` on; those above the first row come in, 0 if that is
    the ``top`` row; those of the last row go out. text uint8[]: from ``ahead`` on a cache line is
    asked for in each row, as memory answers meanwhile if it is asked no more often.
    """
    signature = types.void(
        state, INDEX, letters, INDEX, equal, INDEX, INDEX, deltas, INDEX, types.boolean,
        text, INDEX,
    )  # fmt: skip

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kinds = signature.args
        states = Memory(context, builder, kinds[0], args[0])
        places = context.make_array(kinds[2])(context, builder, args[2]).data
        equals = Memory(context, builder, kinds[4], args[4])
        horizontal = Memory(context, builder, kinds[7], args[7])
        # LLVM keeps these in registers
        carried = [cgutils.alloca_once_value(builder, WORD(None)) for _ in range(2 * COLUMNS)]
        with builder.if_then(builder.not_(args[9])):
            for i, slot in enumerate(carried):
                builder.store(horizontal.load(plus(builder, args[8], i * WORDS)), slot)
        columns = [
            builder.add(args[5], builder.mul(args[6], INT64(column))) for column in range(COLUMNS)
        ]
        next_text = builder.gep(
            context.make_array(kinds[10])(context, builder, args[10]).data, [args[11]]
        )
        with cgutils.for_range(builder, args[1]) as loop:
            fetch(builder, builder.gep(next_text, [builder.mul(loop.index, INT64(LINE))]))
            row = builder.add(loop.index, args[3])
            letter = builder.load(builder.gep(places, [row]))
            at = builder.mul(row, INT64(2 * WORDS))
            vp = states.load(at)
            vm = states.load(plus(builder, at, WORDS))
            for column in range(COLUMNS):
                hp = builder.load(carried[2 * column])
                hm = builder.load(carried[2 * column + 1])
                z = equals.load(builder.add(columns[column], letter))
                z = logic(context, builder, OR, z, vm, hm)
                builder.store(logic(context, builder, OR_NEITHER, vm, z, vp), carried[2 * column])
                builder.store(builder.and_(z, vp), carried[2 * column + 1])
                vp = logic(context, builder, OR_NEITHER, hm, z, hp)
                vm = builder.and_(z, hp)
            states.store(vp, at)
            states.store(vm, plus(builder, at, WORDS))
        for i, slot in enumerate(carried):
            horizontal.store(builder.load(slot), plus(builder, args[8], i * WORDS))
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def count(
    typingctx: Any,
    counters: Any,
    at: Any,
    planes: Any,
    deltas: Any,
    deltas_at: Any,
    low: Any,
    low_at: Any,
    low_planes: Any,
    hits: Any,
    hits_at: Any,
) -> Any:
    """Follow the score of the last row over COLUMNS columns; a uint64, zero if none of them hits.

    counters: ``planes`` words from ``at`` on, the two's complement of D - k - 1 in 512 lanes, least
    significant bit first. Its sign is the hit and goes to ``hits``, a word a column; the lowest
    ``low_planes`` planes go to ``low``, a ROW each, a word a column.

    Adding hp - hm is a full adder a plane whose second operand is hp | hm, then hm, hm, ...
    """
    signature = types.uint64(
        counters, INDEX, INDEX, deltas, INDEX, low, INDEX, INDEX, hits, INDEX
    )  # fmt: skip

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kinds = signature.args
        counter = Memory(context, builder, kinds[0], args[0])
        horizontal = Memory(context, builder, kinds[3], args[3])
        lows = Memory(context, builder, kinds[5], args[5])
        hit = Memory(context, builder, kinds[8], args[8])
        negative: list[Any] = []
        adding: list[Any] = []
        carrying: list[Any] = []
        for column in range(COLUMNS):
            base = plus(builder, args[4], 2 * column * WORDS)
            hp, hm = horizontal.load(base), horizontal.load(plus(builder, base, WORDS))
            for slots, value in (
                (negative, hm),
                (adding, builder.or_(hp, hm)),
                (carrying, ONES.type(None)),
            ):
                slots.append(cgutils.alloca_once_value(builder, value))
        any_hit = cgutils.alloca_once(builder, WORD)
        with cgutils.for_range(builder, args[2]) as loop:
            place = builder.add(args[1], builder.mul(loop.index, INT64(WORDS)))
            plane = counter.load(place)
            sums = []
            for column in range(COLUMNS):
                a = builder.load(adding[column])
                carry = builder.load(carrying[column])
                builder.store(logic(context, builder, MAJORITY, a, carry, plane), carrying[column])
                builder.store(builder.load(negative[column]), adding[column])
                plane = logic(context, builder, XOR, plane, a, carry)
                sums.append(plane)
            counter.store(plane, place)
            with builder.if_then(builder.icmp_signed("<", loop.index, args[7])):
                base = builder.add(args[6], builder.mul(loop.index, INT64(ROW)))
                for column, value in enumerate(sums):
                    lows.store(value, plus(builder, base, column * WORDS))
            last = builder.icmp_signed("==", loop.index, builder.sub(args[2], INT64(1)))
            with builder.if_then(last):
                joined = sums[0]
                for column, value in enumerate(sums):
                    hit.store(value, plus(builder, args[9], column * WORDS))
                    joined = builder.or_(joined, value)
                builder.store(joined, any_hit)
        reduce = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(INT64, [WORD]), f"llvm.vector.reduce.or.v{WORDS}i64"
        )
        return builder.call(reduce, [builder.load(any_hit)])

    return signature, codegen
