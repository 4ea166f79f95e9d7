"""Vectors of 8 uint64 as values in numba kernels: 512 bits that LLVM keeps in registers.

numba vectorizes loops over arrays, but then every intermediate result goes through memory, and 512
bits are not used where LLVM prefers 256. Here a vector is a value of a kernel like any other:

    total = exclusive_or(first, second, third)       # one instruction with AVX-512, two elsewhere

On machines without AVX-512 LLVM makes two (AVX2) or four (SSE, NEON) instructions of each. Places
in memory are counted in uint64; arrays are C-contiguous and one-dimensional, and best begin at a
multiple of 64 bytes (``aligned_words``): a vector that crosses two cache lines costs two loads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, models, register_model
from numpy.typing import NDArray

WORDS = 8
"""uint64 in a vector."""

_WORD = ir.IntType(64)
_LLVM_VECTOR = ir.VectorType(_WORD, WORDS)
_BYTES = ir.VectorType(ir.IntType(8), 8 * WORDS)


class _VectorType(types.Type):  # type: ignore[misc, unused-ignore]
    def __init__(self) -> None:
        super().__init__(name="uint64 x 8")  # type: ignore[no-untyped-call, unused-ignore]


_vector = _VectorType()


@register_model(_VectorType)
class _VectorModel(models.PrimitiveModel):  # type: ignore[misc, unused-ignore]
    def __init__(self, manager: Any, typed: Any) -> None:
        super().__init__(manager, typed, _LLVM_VECTOR)  # type: ignore[no-untyped-call, unused-ignore]


def aligned_words(count: int) -> NDArray[np.uint64]:
    """uint64[count], zeros, beginning at a multiple of 64 bytes."""
    raw = np.zeros(8 * count + 64, dtype=np.uint8)
    skipped = -raw.ctypes.data % 64
    return raw[skipped : skipped + 8 * count].view(np.uint64)


def _address(context: Any, builder: Any, signature: Any, args: Any, pointed: Any) -> Any:
    """Where the element ``args[1]`` of the array ``args[0]`` lies."""
    data = context.make_array(signature.args[0])(context, builder, args[0]).data
    index = context.cast(builder, args[1], signature.args[1], types.intp)
    return builder.bitcast(builder.gep(data, [index]), pointed.as_pointer())


@intrinsic
def load(typingctx: Any, words: Any, index: Any) -> Any:
    """The vector at words[index : index + 8] of a uint64 array."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(_address(context, builder, signature, args, _LLVM_VECTOR), align=8)

    return _vector(words, index), codegen


@intrinsic
def store(typingctx: Any, words: Any, index: Any, vector: Any) -> Any:
    """words[index : index + 8] = vector."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address = _address(context, builder, signature, args, _LLVM_VECTOR)
        builder.store(args[2], address, align=8)
        return context.get_dummy_value()

    return types.void(words, index, vector), codegen


@intrinsic
def spread(typingctx: Any, word: Any) -> Any:
    """The vector whose eight words are that uint64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _spread(builder, context.cast(builder, args[0], signature.args[0], types.uint64))

    return _vector(word), codegen


def _spread(builder: Any, word: Any) -> Any:
    nothing = ir.Constant(_LLVM_VECTOR, ir.Undefined)
    first = builder.insert_element(nothing, word, ir.IntType(32)(0))
    lanes = ir.Constant(ir.VectorType(ir.IntType(32), WORDS), None)
    return builder.shuffle_vector(first, nothing, lanes)


def _operation(count: int, body: Callable[..., Any], doc: str) -> Any:
    """A function for kernels of ``count`` vectors; ``body`` builds its result."""
    names = ", ".join("abc"[:count])

    def make() -> Any:
        return lambda context, builder, signature, args: body(builder, *args)

    # an intrinsic must name its arguments
    scope: dict[str, Any] = {"vector": _vector, "make": make}
    exec(f"def typed(typingctx, {names}):\n    return vector({names}), make()\n", scope)
    scope["typed"].__doc__ = doc
    return intrinsic(scope["typed"])


def _has_ternary(context: Any) -> bool:
    """Whether the machine that is compiled for has three-input logic on 512 bits."""
    features = str(getattr(context.codegen(), "_tm_features", ""))
    return "+avx512f" in features.split(",")


def _ternary(name: str, truth_table: int, body: Callable[..., Any], doc: str) -> Any:
    """A bitwise function of three vectors: one instruction where there is one, else ``body``.

    LLVM finds the instruction by itself for some shapes of an expression only.
    """

    def typed(typingctx: Any, x: Any, y: Any, z: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            if not _has_ternary(context):
                return body(builder, *args)
            int32 = ir.IntType(32)
            function = builder.module.declare_intrinsic(
                "llvm.x86.avx512.pternlog.q.512",
                [],
                ir.FunctionType(_LLVM_VECTOR, [_LLVM_VECTOR] * 3 + [int32]),
            )
            return builder.call(function, [*args, int32(truth_table)])

        return _vector(x, y, z), codegen

    typed.__name__ = name
    typed.__doc__ = doc
    return intrinsic(typed)


exclusive_or = _ternary(
    "exclusive_or",
    0b10010110,
    lambda b, x, y, z: b.xor(b.xor(x, y), z),
    "x ^ y ^ z: the sum bit of a full adder.",
)
majority = _ternary(
    "majority",
    0b11101000,
    lambda b, x, y, z: b.or_(b.and_(x, y), b.and_(z, b.or_(x, y))),
    "The bits set in two of x, y, z or in all: the carry bit of a full adder.",
)
difference = _operation(2, lambda b, x, y: b.xor(x, y), "x ^ y: the sum bit of a half adder.")
common = _operation(2, lambda b, x, y: b.and_(x, y), "x & y: the carry bit of a half adder.")
either = _operation(2, lambda b, x, y: b.or_(x, y), "x | y.")
without = _operation(2, lambda b, x, y: b.and_(x, b.not_(y)), "x & ~y.")


@intrinsic
def shifted_pair(typingctx: Any, low: Any, high: Any, bits: Any) -> Any:
    """The low words of (high : low) >> bits, lane by lane; 0 <= bits < 64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        amount = context.cast(builder, args[2], signature.args[2], types.uint64)
        function = builder.module.declare_intrinsic(
            # llvmlite has no suffix for vectors
            f"llvm.fshr.v{WORDS}i64",
            [],
            ir.FunctionType(_LLVM_VECTOR, [_LLVM_VECTOR] * 3),
        )
        return builder.call(function, [args[1], args[0], _spread(builder, amount)])

    return _vector(low, high, bits), codegen


@intrinsic
def occupied(typingctx: Any, vector: Any) -> Any:
    """uint64: bit w is set where word w of the vector is not zero."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        zero = ir.Constant(_LLVM_VECTOR, None)
        bits = builder.icmp_unsigned("!=", args[0], zero)
        return builder.zext(builder.bitcast(bits, ir.IntType(WORDS)), _WORD)

    return types.uint64(vector), codegen


def _spread_byte(context: Any, builder: Any, given: Any, value: Any) -> Any:
    """The vector whose 64 bytes are that number."""
    nothing = ir.Constant(_BYTES, ir.Undefined)
    byte = context.cast(builder, value, given, types.uint8)
    first = builder.insert_element(nothing, byte, ir.IntType(32)(0))
    lanes = ir.Constant(ir.VectorType(ir.IntType(32), 64), None)
    return builder.shuffle_vector(first, nothing, lanes)


@intrinsic
def differs(typingctx: Any, letters: Any, index: Any, letter: Any) -> Any:
    """uint64: bit i is set where letters[index + i] of a uint8 array is not ``letter``."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        found = builder.load(_address(context, builder, signature, args, _BYTES), align=1)
        wanted = _spread_byte(context, builder, signature.args[2], args[2])
        return builder.bitcast(builder.icmp_unsigned("!=", found, wanted), _WORD)

    return types.uint64(letters, index, letter), codegen


@intrinsic
def marked(typingctx: Any, codes: Any, index: Any, bits: Any) -> Any:
    """uint64: bit i is set where codes[index + i] of a uint8 array has one of ``bits``."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        found = builder.load(_address(context, builder, signature, args, _BYTES), align=1)
        wanted = _spread_byte(context, builder, signature.args[2], args[2])
        bits_there = builder.icmp_unsigned(
            "!=", builder.and_(found, wanted), ir.Constant(_BYTES, None)
        )
        return builder.bitcast(bits_there, _WORD)

    return types.uint64(codes, index, bits), codegen
