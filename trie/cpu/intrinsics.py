"""Machine instructions that numba does not name: prefetch, unaligned words, counts of bits."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray


def _prefetch(name: str, use: int, doc: str) -> Any:
    """An intrinsic that asks for a cache line in every level; ``use`` 0: to read, 1: to write."""

    def typed(typingctx: Any, array: Any, index: Any) -> Any:
        signature = types.void(array, index)

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            array_type, index_type = signature.args
            data = context.make_array(array_type)(context, builder, args[0]).data
            offset = context.cast(builder, args[1], index_type, types.intp)
            pointer = builder.bitcast(builder.gep(data, [offset]), ir.IntType(8).as_pointer())
            int32 = ir.IntType(32)
            function = builder.module.declare_intrinsic(
                "llvm.prefetch",
                [ir.IntType(8).as_pointer()],
                ir.FunctionType(ir.VoidType(), [ir.IntType(8).as_pointer(), int32, int32, int32]),
            )
            # keep in every cache level, data cache
            builder.call(function, [pointer, int32(use), int32(3), int32(1)])
            return context.get_dummy_value()

        return signature, codegen

    typed.__name__ = name
    typed.__doc__ = doc
    return intrinsic(typed)


prefetch = _prefetch(
    "prefetch",
    0,
    "Ask for the cache line of ``array[index]`` (C-contiguous, one-dimensional) for reading.",
)
prefetch_to_write = _prefetch(
    "prefetch_to_write",
    1,
    "Ask for the cache line of ``array[index]`` (C-contiguous, one-dimensional) for writing.",
)


@intrinsic
def word_at(typingctx: Any, array: Any, index: Any) -> Any:
    """The eight bytes of a uint8 array (C-contiguous, one-dimensional) from ``index``, a uint64.

    They need not be aligned; the first is lowest on little-endian machines. Nothing is checked.
    """
    signature = types.uint64(array, index)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array_type, index_type = signature.args
        data = context.make_array(array_type)(context, builder, args[0]).data
        offset = context.cast(builder, args[1], index_type, types.intp)
        pointer = builder.bitcast(builder.gep(data, [offset]), ir.IntType(64).as_pointer())
        word = builder.load(pointer)
        word.align = 1
        return word

    return signature, codegen


def _unary(name: str, *, with_flag: bool) -> Any:
    """An intrinsic for an LLVM bit-counting operation on an unsigned integer of any width."""

    def typed(typingctx: Any, value: Any) -> Any:
        signature = value(value)

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            word = args[0].type
            arguments = [args[0]]
            parameters = [word]
            if with_flag:
                arguments.append(ir.IntType(1)(0))
                parameters.append(ir.IntType(1))
            function = builder.module.declare_intrinsic(
                f"llvm.{name}", [word], ir.FunctionType(word, parameters)
            )
            return builder.call(function, arguments)

        return signature, codegen

    typed.__name__ = name
    typed.__doc__ = f"LLVM's {name} of an unsigned integer; the result has the argument's type."
    return intrinsic(typed)


popcount = _unary("ctpop", with_flag=False)
leading_zeros = _unary("ctlz", with_flag=True)
trailing_zeros = _unary("cttz", with_flag=True)
reversed_bits = _unary("bitreverse", with_flag=False)


def array_address(array: NDArray[Any]) -> int:
    """Where an array's first element lies, for ``pointer`` in a kernel; whoever asks keeps it."""
    where: int = array.__array_interface__["data"][0]
    return where


@intrinsic
def pointer(typingctx: Any, address: Any) -> Any:
    """An address in memory (uint64) as a pointer, for ``numba.carray`` with a type."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.uint64), codegen
