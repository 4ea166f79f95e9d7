"""Four words at once: 16-byte loads and stores of global memory, which numba does not make."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types

from gpu.intrinsics import SIMULATED

if SIMULATED:

    def load_four(array: Any, index: Any) -> Any:
        """Words 4 index to 4 index + 3 (uint32) of an array of any kind that nobody writes now."""
        at = 16 * int(index)
        return tuple(array._ary.view(np.uint8)[at : at + 16].view(np.uint32))

    def store_four(array: Any, index: Any, a: Any, b: Any, c: Any, d: Any) -> None:
        """Write words 4 index to 4 index + 3 (uint32) of an array of any kind."""
        at = 16 * int(index)
        array._ary.view(np.uint8)[at : at + 16].view(np.uint32)[:] = a, b, c, d

    def stage_four(array: Any, address: Any, a: Any, b: Any, c: Any, d: Any) -> None:
        """Write four words to an array in shared memory at an address in it, 16 | address."""
        array[int(address) // 4 : int(address) // 4 + 4] = a, b, c, d

else:
    from numba.cuda.extending import intrinsic

    _WORD = ir.IntType(32)
    _WIDE = ir.IntType(64)
    _FOUR: Any = types.UniTuple(types.uint32, 4)  # type: ignore[no-untyped-call, unused-ignore]

    def _address(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        index = context.cast(builder, args[1], signature.args[1], types.uint64)
        return builder.add(builder.ptrtoint(data, _WIDE), builder.shl(index, _WIDE(4)))

    @intrinsic
    def load_four(typingctx: Any, array: Any, index: Any) -> Any:
        """Words 4 index to 4 index + 3 (uint32) of an array of any kind that nobody writes now."""

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            load = ir.InlineAsm(
                ir.FunctionType(ir.LiteralStructType([_WORD] * 4), [_WIDE]),
                "ld.global.nc.v4.u32 {$0, $1, $2, $3}, [$4];",
                "=r,=r,=r,=r,l",
                side_effect=False,
            )
            four = builder.call(load, [_address(context, builder, signature, args)])
            parts = [builder.extract_value(four, i) for i in range(4)]
            return context.make_tuple(builder, signature.return_type, parts)

        return _FOUR(array, index), codegen

    @intrinsic
    def store_four(typingctx: Any, array: Any, index: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
        """Write words 4 index to 4 index + 3 (uint32) of an array of any kind."""

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            words = [
                context.cast(builder, value, given, types.uint32)
                for value, given in zip(args[2:], signature.args[2:], strict=True)
            ]
            store = ir.InlineAsm(
                ir.FunctionType(ir.VoidType(), [_WIDE, *[_WORD] * 4]),
                "st.global.v4.u32 [$0], {$1, $2, $3, $4};",
                "l,r,r,r,r,~{memory}",
                side_effect=True,
            )
            builder.call(store, [_address(context, builder, signature, args), *words])
            return context.get_dummy_value()

        return types.void(array, index, a, b, c, d), codegen

    @intrinsic
    def stage_four(typingctx: Any, array: Any, address: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
        """Write four words to an array in shared memory at an address in it, 16 | address."""

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            words = [
                context.cast(builder, value, given, types.uint32)
                for value, given in zip(args[1:], signature.args[1:], strict=True)
            ]
            store = ir.InlineAsm(
                ir.FunctionType(ir.VoidType(), [_WORD] * 5),
                "st.shared.v4.u32 [$0], {$1, $2, $3, $4};",
                "r,r,r,r,r,~{memory}",
                side_effect=True,
            )
            builder.call(store, words)
            return context.get_dummy_value()

        return types.void(array, address, a, b, c, d), codegen
