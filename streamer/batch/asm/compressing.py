"""Convert set bits to lists of numbers: instructions for ``tile_hits`` that numba lacks.

AVX-512 (VBMI2) compresses the chosen elements of a vector in one instruction, so a word with hits
costs the same whichever bits are set. Elsewhere it takes a step per bit, or per set bit.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from trie.cpu.llvm import (
    BYTES,
    I1,
    I8,
    I16,
    I32,
    I64,
    INDEX,
    call,
    cgutils,
    constant,
    element,
    has_feature,
    instruction,
    load,
    shuffle,
    spread,
    store,
)

AT_ONCE = 8  # numbers that ``widen`` writes at a time
LISTED = 16  # places that ``list_bits`` writes, and bits that it examines
_NUMBERS = ir.VectorType(I32, LISTED)
_MASK = ir.VectorType(I1, 64)
_FEW = 16
"""A word with no more hits than this stores this many: 64 bytes would touch two cache lines."""


def _compressed(builder: Any, values: Any, bits: Any) -> Any:
    """Return the values whose bit is set, contiguously, then zeros."""
    vector = values.type
    name = f"llvm.x86.avx512.mask.compress.v{vector.count}i{vector.element.width}"
    mask = builder.bitcast(bits, ir.VectorType(I1, vector.count))
    return call(builder, name, vector, values, vector(None), mask)


def _ascending(vector: Any) -> Any:
    return constant(vector, *range(vector.count))


@instruction(types.int64, None, INDEX, types.uint32, types.uint64)
def list_bits(builder: Any, numbers: Any, at: Any, first: Any, bits: Any) -> Any:
    """numbers[at:] = first + b for each set bit b < 16, ascending; return their count, int64.

    numbers: uint32[]; LISTED elements from ``at`` on are overwritten.
    """
    few = builder.trunc(bits, I16)
    if has_feature("avx512f"):
        every = builder.add(spread(builder, first, _NUMBERS), _ascending(_NUMBERS))
        store(builder, _compressed(builder, every, few), numbers, at)
        return builder.zext(call(builder, "llvm.ctpop.i16", I16, few), I64)
    done = I64(0)
    for bit in range(LISTED):
        place = element(builder, numbers, builder.add(at, done))
        builder.store(builder.add(first, I32(bit)), place)
        own = builder.and_(builder.lshr(few, I16(bit)), I16(1))
        done = builder.add(done, builder.zext(own, I64))
    return done


@instruction(types.int64, types.uint64, None, INDEX, INDEX, INDEX, None, None, INDEX)
def pack_word(
    builder: Any,
    bits: Any,
    planes: Any,
    plane_at: Any,
    stride: Any,
    count: Any,
    places: Any,
    digits: Any,
    at: Any,
) -> Any:
    """places[at:] = b and digits[at:] = its digits, for each set bit b of the 64 ``bits``.

    Digits: bit p is bit b of planes[plane_at + p * stride], for p < count <= 8. places, digits
    uint8[], of which 64 from ``at`` on may be overwritten. Returns their count, int64.
    """
    size = call(builder, "llvm.ctpop.i64", I64, bits)

    def plane(number: Any) -> Any:
        offset = builder.add(plane_at, builder.mul(number, stride))
        return builder.load(element(builder, planes, offset))

    if has_feature("avx512vbmi2"):
        digit = cgutils.alloca_once_value(builder, BYTES(None))
        with cgutils.for_range(builder, count) as loop:
            value = builder.shl(I8(1), builder.trunc(loop.index, I8))
            there = builder.bitcast(plane(loop.index), _MASK)
            chosen = builder.select(there, spread(builder, value, BYTES), BYTES(None))
            builder.store(builder.or_(builder.load(digit), chosen), digit)
        packed = [
            (_compressed(builder, _ascending(BYTES), bits), places),
            (_compressed(builder, builder.load(digit), bits), digits),
        ]
        for values, out in packed:
            store(builder, shuffle(builder, values, values, list(range(_FEW))), out, at)
        with builder.if_then(builder.icmp_unsigned(">", size, I64(_FEW)), likely=False):
            for values, out in packed:
                store(builder, values, out, at)
        return size
    left = cgutils.alloca_once_value(builder, bits)
    with cgutils.for_range(builder, size) as loop:
        rest = builder.load(left)
        bit = call(builder, "llvm.cttz.i64", I64, rest, I1(1))
        builder.store(builder.and_(rest, builder.sub(rest, I64(1))), left)
        to = builder.add(at, loop.index)
        builder.store(builder.trunc(bit, I8), element(builder, places, to))
        digit = cgutils.alloca_once_value(builder, I64(0))
        builder.store(I64(0), digit)
        with cgutils.for_range(builder, count) as inner:
            own = builder.and_(builder.lshr(plane(inner.index), bit), I64(1))
            own = builder.shl(own, inner.index)
            builder.store(builder.or_(builder.load(digit), own), digit)
        builder.store(builder.trunc(builder.load(digit), I8), element(builder, digits, to))
    return size


@instruction(types.void, None, INDEX, types.int64, None, INDEX)
def widen(builder: Any, small: Any, at: Any, first: Any, out: Any, to: Any) -> None:
    """out[to + i] = first + small[at + i] for i < AT_ONCE.

    small: uint8[]. out: int32[] or int64[].
    """
    number = out.type.pointee
    vector = ir.VectorType(number, AT_ONCE)
    values = load(builder, small, at, ir.VectorType(I8, AT_ONCE))
    base = first if number == I64 else builder.trunc(first, number)
    values = builder.add(builder.zext(values, vector), spread(builder, base, vector))
    store(builder, values, out, to)
