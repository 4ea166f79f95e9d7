"""Set bits as lists of numbers: the instructions of ``hit_words`` that numba has no name for.

AVX-512 (VBMI2) puts the chosen elements of a vector side by side in one instruction, so that a word
with hits costs the same however its bits lie. Elsewhere there is a step a bit, or a set bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types

from streamer.batch.asm.lane_words import (
    INDEX,
    INT8,
    INT64,
    cgutils,
    has_feature,
    intrinsic,
)

AT_ONCE = 8
"""Numbers that ``widen`` writes."""

LISTED = 16
"""Places that ``list_bits`` writes, and bits that it looks at."""

_INT1, _INT16, _INT32 = ir.IntType(1), ir.IntType(16), ir.IntType(32)
_BYTES = ir.VectorType(INT8, 64)
_NUMBERS = ir.VectorType(_INT32, LISTED)
_FEW = 16
"""Hits of a word that are stored if it has no more: a store of 64 bytes takes two cache lines."""


def _counting(vector: Any) -> Any:
    return ir.Constant(vector, [ir.Constant(vector.element, i) for i in range(vector.count)])


def _all(builder: Any, value: Any, vector: Any) -> Any:
    """A vector with that value everywhere."""
    nothing = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(nothing, value, _INT32(0))
    return builder.shuffle_vector(
        first, nothing, ir.Constant(ir.VectorType(_INT32, vector.count), None)
    )


def _compressed(builder: Any, values: Any, bits: Any) -> Any:
    """The values whose bit is set, side by side, then zeros."""
    vector = values.type
    mask = ir.VectorType(_INT1, vector.count)
    name = f"llvm.x86.avx512.mask.compress.v{vector.count}i{vector.element.width}"
    function = builder.module.declare_intrinsic(
        name, [], ir.FunctionType(vector, [vector, vector, mask])
    )
    return builder.call(function, [values, vector(None), builder.bitcast(bits, mask)])


def _count(builder: Any, bits: Any) -> Any:
    function = builder.module.declare_intrinsic(
        f"llvm.ctpop.i{bits.type.width}", [], ir.FunctionType(bits.type, [bits.type])
    )
    return builder.call(function, [bits])


def _array(context: Any, builder: Any, kind: Any, array: Any) -> Callable[..., Any]:
    """A function that gives the address of an element, as one of ``pointed`` if that is given."""
    data = context.make_array(kind)(context, builder, array).data

    def address(at: Any, pointed: Any = None) -> Any:
        pointer = builder.gep(data, [at])
        return pointer if pointed is None else builder.bitcast(pointer, pointed.as_pointer())

    return address


@intrinsic
def list_bits(typingctx: Any, numbers: Any, at: Any, first: Any, bits: Any) -> Any:
    """numbers[at:] = first + b for each bit b < 16 that is set, ascending; how many, int64.

    numbers: uint32[], of which LISTED from ``at`` on are written over.
    """
    signature = types.int64(numbers, INDEX, types.uint32, types.uint64)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        out = _array(context, builder, signature.args[0], args[0])
        few = builder.trunc(args[3], _INT16)
        if has_feature(context, "avx512f"):
            all_ = builder.add(_all(builder, args[2], _NUMBERS), _counting(_NUMBERS))
            builder.store(_compressed(builder, all_, few), out(args[1], _NUMBERS), align=4)
            return builder.zext(_count(builder, few), INT64)
        done = INT64(0)
        for bit in range(LISTED):
            builder.store(builder.add(args[2], _INT32(bit)), out(builder.add(args[1], done)))
            own = builder.and_(builder.lshr(few, _INT16(bit)), _INT16(1))
            done = builder.add(done, builder.zext(own, INT64))
        return done

    return signature, codegen


@intrinsic
def pack_word(
    typingctx: Any,
    bits: Any,
    planes: Any,
    plane_at: Any,
    stride: Any,
    count: Any,
    places: Any,
    digits: Any,
    at: Any,
) -> Any:
    """places[at:] = b and digits[at:] = its digits, for each of the 64 ``bits`` b that is set.

    Digits: bit p is bit b of planes[plane_at + p * stride], for p < count <= 8. places, digits
    uint8[], of which 64 from ``at`` on may be written over. How many, int64.
    """
    signature = types.int64(types.uint64, planes, INDEX, INDEX, INDEX, places, digits, INDEX)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        bits, _, plane_at, stride, count, _, _, at = args
        words = _array(context, builder, signature.args[1], args[1])
        out_places = _array(context, builder, signature.args[5], args[5])
        out_digits = _array(context, builder, signature.args[6], args[6])
        size = _count(builder, bits)

        def plane(number: Any) -> Any:
            return builder.load(words(builder.add(plane_at, builder.mul(number, stride))))

        if has_feature(context, "avx512vbmi2"):
            digit = cgutils.alloca_once_value(builder, _BYTES(None))
            mask = ir.VectorType(_INT1, 64)
            with cgutils.for_range(builder, count) as loop:
                value = builder.shl(INT8(1), builder.trunc(loop.index, INT8))
                there = builder.bitcast(plane(loop.index), mask)
                chosen = builder.select(there, _all(builder, value, _BYTES), _BYTES(None))
                builder.store(builder.or_(builder.load(digit), chosen), digit)
            few = ir.VectorType(INT8, _FEW)
            held = [
                (_compressed(builder, _counting(_BYTES), bits), out_places),
                (_compressed(builder, builder.load(digit), bits), out_digits),
            ]
            low = ir.Constant(ir.VectorType(_INT32, _FEW), list(range(_FEW)))
            for values, out in held:
                builder.store(builder.shuffle_vector(values, values, low), out(at, few), align=1)
            with builder.if_then(builder.icmp_unsigned(">", size, INT64(_FEW)), likely=False):
                for values, out in held:
                    builder.store(values, out(at, _BYTES), align=1)
            return size
        left = cgutils.alloca_once_value(builder, bits)
        zeros = builder.module.declare_intrinsic(
            "llvm.cttz.i64", [], ir.FunctionType(INT64, [INT64, _INT1])
        )
        with cgutils.for_range(builder, size) as loop:
            rest = builder.load(left)
            bit = builder.call(zeros, [rest, _INT1(1)])
            builder.store(builder.and_(rest, builder.sub(rest, INT64(1))), left)
            to = builder.add(at, loop.index)
            builder.store(builder.trunc(bit, INT8), out_places(to))
            digit = cgutils.alloca_once_value(builder, INT64(0))
            builder.store(INT64(0), digit)
            with cgutils.for_range(builder, count) as inner:
                own = builder.and_(builder.lshr(plane(inner.index), bit), INT64(1))
                own = builder.shl(own, inner.index)
                builder.store(builder.or_(builder.load(digit), own), digit)
            builder.store(builder.trunc(builder.load(digit), INT8), out_digits(to))
        return size

    return signature, codegen


@intrinsic
def widen(typingctx: Any, small: Any, at: Any, first: Any, out: Any, to: Any) -> Any:
    """out[to + i] = first + small[at + i] for i < AT_ONCE.

    small: uint8[]. out: int32[] or int64[].
    """
    signature = types.void(small, INDEX, types.int64, out, INDEX)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        source = _array(context, builder, signature.args[0], args[0])
        target = _array(context, builder, signature.args[3], args[3])
        number = ir.IntType(signature.args[3].dtype.bitwidth)
        vector = ir.VectorType(number, AT_ONCE)
        values = builder.load(source(args[1], ir.VectorType(INT8, AT_ONCE)), align=1)
        base = args[2] if number == INT64 else builder.trunc(args[2], number)
        values = builder.add(builder.zext(values, vector), _all(builder, base, vector))
        builder.store(values, target(args[4], vector), align=number.width // 8)
        return context.get_dummy_value()

    return signature, codegen
