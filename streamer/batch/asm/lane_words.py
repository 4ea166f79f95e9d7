"""Words of 512 bits as values of LLVM: what the intrinsics of the bit-sliced search are made of.

A bit-sliced word holds one bit of 512 text segments. In memory it is 8 consecutive uint64; its lane
x is bit x // 8 of the uint64 x % 8. LLVM makes one AVX-512 register of it, two of AVX2, four of
SSE or NEON. All arrays are one-dimensional, C-contiguous uint64; places in them are counted in
uint64 and are multiples of 8.
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

ROW = LANES + WORDS
"""uint64 from one plane, a word a lane, to the next: they share no set of the cache."""

LINE = 64
"""Bytes of a cache line."""

INT8 = ir.IntType(8)
INT64 = ir.IntType(64)
WORD = ir.VectorType(INT64, WORDS)
ONES = ir.Constant(WORD, [ir.Constant(INT64, -1)] * WORDS)
INDEX = types.int64

MAJORITY = 0b11101000
SELECT = 0b11001010
OR = 0b11111110
XOR = 0b10010110
OR_NEITHER = 0b11110001
"""Truth tables of three inputs x, y, z: z is bit 0 of the place, x bit 2. The last is
x | ~(y | z)."""


class Memory:
    """Bit-sliced words of one array argument."""

    def __init__(self, context: Any, builder: Any, array_type: Any, array: Any) -> None:
        self._builder = builder
        self.data = context.make_array(array_type)(context, builder, array).data

    def _place(self, at: Any) -> Any:
        return self._builder.bitcast(self._builder.gep(self.data, [at]), WORD.as_pointer())

    def load(self, at: Any) -> Any:
        """The word from place ``at`` on."""
        return self._builder.load(self._place(at), align=8)

    def store(self, value: Any, at: Any) -> None:
        """Write the word from place ``at`` on."""
        self._builder.store(value, self._place(at), align=8)


def plus(builder: Any, at: Any, words: int) -> Any:
    """A place ``words`` further."""
    return builder.add(at, INT64(words)) if words else at


def has_feature(context: Any, name: str) -> bool:
    """Whether the machine that is compiled for has these instructions."""
    features = str(getattr(context.codegen(), "_tm_features", ""))
    return f"+{name}" in features.split(",")


def logic(context: Any, builder: Any, table: int, x: Any, y: Any, z: Any) -> Any:
    """A function of three words by its truth table: one instruction where there is one for it.

    LLVM finds it by itself for some shapes of an expression only: it took eight for the five of
    a cell.
    """
    if has_feature(context, "avx512f"):
        int32 = ir.IntType(32)
        function = builder.module.declare_intrinsic(
            "llvm.x86.avx512.pternlog.q.512", [], ir.FunctionType(WORD, [WORD] * 3 + [int32])
        )
        return builder.call(function, [x, y, z, int32(table)])
    if table == MAJORITY:
        return builder.or_(builder.and_(x, y), builder.and_(z, builder.or_(x, y)))
    if table == SELECT:
        return builder.or_(builder.and_(x, y), builder.and_(builder.not_(x), z))
    if table == XOR:
        return builder.xor(builder.xor(x, y), z)
    if table == OR:
        return builder.or_(builder.or_(x, y), z)
    assert table == OR_NEITHER
    return builder.or_(x, builder.not_(builder.or_(y, z)))


def fetch(builder: Any, pointer: Any) -> Any:
    """Ask for a cache line that will be read, in the second level."""
    int32 = ir.IntType(32)
    function = builder.module.declare_intrinsic(
        "llvm.prefetch",
        [pointer.type],
        ir.FunctionType(ir.VoidType(), [pointer.type, int32, int32, int32]),
    )
    # for reading, in the second level, data
    builder.call(function, [pointer, int32(0), int32(2), int32(1)])


@intrinsic
def fetch_line(typingctx: Any, text: Any, at: Any) -> Any:
    """Ask for the cache line of text[at], a uint8 array."""
    signature = types.void(text, INDEX)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        fetch(builder, builder.gep(data, [args[1]]))
        return context.get_dummy_value()

    return signature, codegen
