"""Words of 512 bits: the instructions of the bit-sliced edit distance that numba has no name for.

A bit-sliced word holds one bit of 512 text segments. In memory it is 8 consecutive uint64; its lane
x is bit x // 8 of the uint64 x % 8. LLVM makes one AVX-512 register of it, two of AVX2, four of
SSE or NEON. All arrays are one-dimensional, C-contiguous uint64; places in them are counted in
uint64 and are multiples of 8.

One cell of the matrix D (WsPASM paper, equation 1) in differences, for 512 segments at once:

    vp, vm   D[i, j-1] - D[i-1, j-1] is +1, -1        hp, hm   D[i-1, j] - D[i-1, j-1] is +1, -1
    z        D[i, j] = D[i-1, j-1]: the letters are equal, or vm, or hm
    hp' = vm | ~(z | vp)   hm' = z & vp               vp' = hm | ~(z | hp)   vm' = z & hp

Five operations with three-input logic (AVX-512), eleven without.
"""

from __future__ import annotations

from typing import Any

import numba.extending
from llvmlite import ir
from numba import types
from numba.core import cgutils as _cgutils

# untyped, or with types that do not fit what the decorator makes
cgutils: Any = _cgutils
intrinsic: Any = numba.extending.intrinsic

LANES = 512
WORDS = 8
"""uint64 of a bit-sliced word."""

COLUMNS = 4
"""Text positions that ``cells`` and ``count`` take at once: a row is loaded once for four."""

_INT8 = ir.IntType(8)
_I64 = ir.IntType(64)
_WORD = ir.VectorType(_I64, WORDS)
_ONES = ir.Constant(_WORD, [ir.Constant(_I64, -1)] * WORDS)
_INDEX = types.int64


class _Memory:
    """Bit-sliced words of one array argument."""

    def __init__(self, context: Any, builder: Any, array_type: Any, array: Any) -> None:
        self._builder = builder
        self.data = context.make_array(array_type)(context, builder, array).data

    def _place(self, at: Any) -> Any:
        return self._builder.bitcast(self._builder.gep(self.data, [at]), _WORD.as_pointer())

    def load(self, at: Any) -> Any:
        return self._builder.load(self._place(at), align=8)

    def store(self, value: Any, at: Any) -> None:
        self._builder.store(value, self._place(at), align=8)


def _plus(builder: Any, at: Any, words: int) -> Any:
    return builder.add(at, _I64(words)) if words else at


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
) -> Any:
    """``rows`` rows of COLUMNS columns of D.

    state: (vp, vm) a row, from row ``first`` on. letters int64[]: where row i's letter stands among
    the words of a column in ``equal``, whose columns lie ``stride`` apart from ``equal_at`` on.
    deltas: (hp, hm) a column from ``deltas_at`` on; those above the first row come in, those of the
    last row go out.
    """
    signature = types.void(
        state, _INDEX, letters, _INDEX, equal, _INDEX, _INDEX, deltas, _INDEX
    )  # fmt: skip

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kinds = signature.args
        states = _Memory(context, builder, kinds[0], args[0])
        places = context.make_array(kinds[2])(context, builder, args[2]).data
        equals = _Memory(context, builder, kinds[4], args[4])
        horizontal = _Memory(context, builder, kinds[7], args[7])
        # LLVM keeps these in registers
        carried = [cgutils.alloca_once(builder, _WORD) for _ in range(2 * COLUMNS)]
        for i, slot in enumerate(carried):
            builder.store(horizontal.load(_plus(builder, args[8], i * WORDS)), slot)
        columns = [
            builder.add(args[5], builder.mul(args[6], _I64(column))) for column in range(COLUMNS)
        ]
        with cgutils.for_range(builder, args[1]) as loop:
            row = builder.add(loop.index, args[3])
            letter = builder.load(builder.gep(places, [row]))
            at = builder.mul(row, _I64(2 * WORDS))
            vp = states.load(at)
            vm = states.load(_plus(builder, at, WORDS))
            for column in range(COLUMNS):
                hp = builder.load(carried[2 * column])
                hm = builder.load(carried[2 * column + 1])
                z = equals.load(builder.add(columns[column], letter))
                z = builder.or_(builder.or_(z, vm), hm)
                builder.store(
                    builder.or_(vm, builder.xor(builder.or_(z, vp), _ONES)), carried[2 * column]
                )
                builder.store(builder.and_(z, vp), carried[2 * column + 1])
                vp = builder.or_(hm, builder.xor(builder.or_(z, hp), _ONES))
                vm = builder.and_(z, hp)
            states.store(vp, at)
            states.store(vm, _plus(builder, at, WORDS))
        for i, slot in enumerate(carried):
            horizontal.store(builder.load(slot), _plus(builder, args[8], i * WORDS))
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
    ``low_planes`` planes go to ``low``, 64 words a plane, a word a column.

    Adding hp - hm is a full adder a plane whose second operand is hp | hm, then hm, hm, ...
    """
    signature = types.uint64(
        counters, _INDEX, _INDEX, deltas, _INDEX, low, _INDEX, _INDEX, hits, _INDEX
    )  # fmt: skip

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kinds = signature.args
        counter = _Memory(context, builder, kinds[0], args[0])
        horizontal = _Memory(context, builder, kinds[3], args[3])
        lows = _Memory(context, builder, kinds[5], args[5])
        hit = _Memory(context, builder, kinds[8], args[8])
        negative: list[Any] = []
        adding: list[Any] = []
        carrying: list[Any] = []
        for column in range(COLUMNS):
            base = _plus(builder, args[4], 2 * column * WORDS)
            hp, hm = horizontal.load(base), horizontal.load(_plus(builder, base, WORDS))
            for slots, value in (
                (negative, hm),
                (adding, builder.or_(hp, hm)),
                (carrying, _ONES.type(None)),
            ):
                slots.append(cgutils.alloca_once_value(builder, value))
        any_hit = cgutils.alloca_once(builder, _WORD)
        with cgutils.for_range(builder, args[2]) as loop:
            place = builder.add(args[1], builder.mul(loop.index, _I64(WORDS)))
            plane = counter.load(place)
            sums = []
            for column in range(COLUMNS):
                a = builder.load(adding[column])
                carry = builder.load(carrying[column])
                half = builder.xor(a, carry)
                builder.store(
                    builder.or_(builder.and_(a, carry), builder.and_(plane, builder.or_(a, carry))),
                    carrying[column],
                )
                builder.store(builder.load(negative[column]), adding[column])
                plane = builder.xor(plane, half)
                sums.append(plane)
            counter.store(plane, place)
            with builder.if_then(builder.icmp_signed("<", loop.index, args[7])):
                base = builder.add(args[6], builder.mul(loop.index, _I64(64 * WORDS)))
                for column, value in enumerate(sums):
                    lows.store(value, _plus(builder, base, column * WORDS))
            last = builder.icmp_signed("==", loop.index, builder.sub(args[2], _I64(1)))
            with builder.if_then(last):
                joined = sums[0]
                for column, value in enumerate(sums):
                    hit.store(value, _plus(builder, args[9], column * WORDS))
                    joined = builder.or_(joined, value)
                builder.store(joined, any_hit)
        reduce = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(_I64, [_WORD]), f"llvm.vector.reduce.or.v{WORDS}i64"
        )
        return builder.call(reduce, [builder.load(any_hit)])

    return signature, codegen


@intrinsic
def transpose(typingctx: Any, words: Any, at: Any) -> Any:
    """Turn 64 words in place: bit c of word r and bit r of word c change places, in each uint64.

    Six exchanges of half the bits (Hacker's Delight 7-3), three of them on eight words at a time.
    """
    signature = types.void(words, _INDEX)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        memory = _Memory(context, builder, signature.args[0], args[0])
        for apart, step, shifts in ((8, 1, (32, 16, 8)), (1, 8, (4, 2, 1))):
            with cgutils.for_range(builder, _I64(8)) as loop:
                first = builder.add(args[1], builder.mul(loop.index, _I64(step * WORDS)))
                places = [_plus(builder, first, i * apart * WORDS) for i in range(8)]
                rows = [memory.load(place) for place in places]
                for shift, distance in zip(shifts, (4, 2, 1), strict=True):
                    _exchange(builder, rows, distance, shift)
                for row, place in zip(rows, places, strict=True):
                    memory.store(row, place)
        return context.get_dummy_value()

    return signature, codegen


def _exchange(builder: Any, rows: list[Any], distance: int, shift: int) -> None:
    """The high bits of each 2 * shift of one row for the low ones of the row ``distance`` on."""
    group = (1 << shift) - 1
    mask = sum(group << i for i in range(0, 64, 2 * shift))
    low = ir.Constant(_WORD, [ir.Constant(_I64, mask)] * WORDS)
    by = ir.Constant(_WORD, [ir.Constant(_I64, shift)] * WORDS)
    for i in range(8):
        if not i & distance:
            one, other = rows[i], rows[i + distance]
            moved = builder.and_(builder.xor(builder.lshr(one, by), other), low)
            rows[i + distance] = builder.xor(other, moved)
            rows[i] = builder.xor(one, builder.shl(moved, by))


@intrinsic
def gather(
    typingctx: Any, plane: Any, at: Any, stride: Any, out: Any, out_at: Any, out_apart: Any
) -> Any:
    """Eight consecutive uint64 of each of 512 lanes, ``stride`` apart from ``at`` on in ``plane``.

    The i-th of all lanes become 64 words of ``out`` from ``out_at + i * out_apart`` on, which
    ``transpose`` turns into columns. Exchanges of halves, as there, but between vectors.
    """
    signature = types.void(plane, _INDEX, _INDEX, out, _INDEX, _INDEX)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        source = _Memory(context, builder, signature.args[0], args[0])
        target = _Memory(context, builder, signature.args[3], args[3])
        with cgutils.for_range(builder, _I64(64)) as loop:
            lane = builder.mul(loop.index, _I64(8))
            rows = []
            for i in range(8):
                place = builder.mul(builder.add(lane, _I64(i)), args[2])
                rows.append(source.load(builder.add(args[1], place)))
            for half in (4, 2, 1):
                for i in range(8):
                    if not i & half:
                        one, other = rows[i], rows[i + half]
                        rows[i] = builder.shuffle_vector(one, other, _halves(half, 0))
                        rows[i + half] = builder.shuffle_vector(one, other, _halves(half, half))
            for i, row in enumerate(rows):
                place = builder.add(args[4], builder.mul(args[5], _I64(i)))
                target.store(row, builder.add(place, lane))
        return context.get_dummy_value()

    return signature, codegen


def _halves(half: int, offset: int) -> Any:
    """Of each 2 * half elements those from ``offset`` on, of one vector, then the other."""
    picked = [
        (i & -2 * half) + offset + (i & (half - 1)) + (8 if i & half else 0) for i in range(8)
    ]
    int32 = ir.IntType(32)
    return ir.Constant(ir.VectorType(int32, 8), [ir.Constant(int32, i) for i in picked])


@intrinsic
def bases(
    typingctx: Any, planes: Any, at: Any, planes_apart: Any, gaps: Any, equal: Any, equal_at: Any
) -> Any:
    """For each of 64 columns the lanes that hold A, C, G and T, four words a column in ``equal``.

    planes: 64 words of the codes' bit 0 from ``at`` on; those of bit 1, and if ``gaps`` is not 0
    of bit 2, stand ``planes_apart`` further each.
    """
    signature = types.void(planes, _INDEX, _INDEX, _INDEX, equal, _INDEX)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        plane = _Memory(context, builder, signature.args[0], args[0])
        out = _Memory(context, builder, signature.args[4], args[4])
        with_gaps = builder.icmp_signed("!=", args[3], _I64(0))
        gap = cgutils.alloca_once_value(builder, _WORD(None))
        with cgutils.for_range(builder, _I64(64)) as loop:
            low = builder.add(args[1], builder.mul(loop.index, _I64(WORDS)))
            high = builder.add(low, args[2])
            p0, p1 = plane.load(low), plane.load(high)
            with builder.if_then(with_gaps):
                builder.store(plane.load(builder.add(high, args[2])), gap)
            a = builder.not_(builder.or_(builder.or_(p0, p1), builder.load(gap)))
            only0, only1 = (builder.and_(x, builder.not_(y)) for x, y in ((p0, p1), (p1, p0)))
            place = builder.add(args[5], builder.mul(loop.index, _I64(4 * WORDS)))
            for i, value in enumerate((a, only0, only1, builder.and_(p0, p1))):
                out.store(value, _plus(builder, place, i * WORDS))
        return context.get_dummy_value()

    return signature, codegen


def _planes(name: str, bits: tuple[int, ...], text: str) -> Any:
    def typed(typingctx: Any, codes: Any, at: Any, planes: Any, out_at: Any, apart: Any) -> Any:
        signature = types.uint64(codes, _INDEX, planes, _INDEX, _INDEX)

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            data = context.make_array(signature.args[0])(context, builder, args[0]).data
            out = context.make_array(signature.args[2])(context, builder, args[2]).data
            row = ir.VectorType(_INT8, 64)
            joined = None
            for word in range(8):
                first = builder.gep(data, [_plus(builder, args[1], 64 * word)])
                values = builder.load(builder.bitcast(first, row.as_pointer()), align=1)
                joined = values if joined is None else builder.or_(joined, values)
                for i, bit in enumerate(bits):
                    place = builder.add(args[3], builder.mul(args[4], _I64(i)))
                    word_of = builder.gep(out, [_plus(builder, place, word)])
                    builder.store(_bit_of(builder, values, bit), word_of)
            return _bit_of(builder, joined, 2)

        return signature, codegen

    typed.__name__ = name
    typed.__doc__ = text
    return intrinsic(typed)


def _bit_of(builder: Any, values: Any, bit: int) -> Any:
    """One bit of each of 64 bytes, as a uint64."""
    only = ir.Constant(values.type, [ir.Constant(_INT8, 1 << bit)] * 64)
    found = builder.icmp_unsigned("!=", builder.and_(values, only), values.type(None))
    return builder.bitcast(found, _I64)


base_planes = _planes(
    "base_planes",
    (0, 1),
    """Bits 0 and 1 of the 512 codes (uint8) from ``at`` on: 8 uint64 each in ``planes``.

    Those of bit 0 stand from ``out_at`` on, those of bit 1 ``apart`` further. The result is not 0
    if there is a gap code.
    """,
)
gap_planes = _planes(
    "gap_planes", (2,), "Bit 2 of 512 codes, as ``base_planes``: where there are gap codes."
)
