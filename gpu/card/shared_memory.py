"""Loads from and stores into shared memory at 32-bit addresses.

An array index costs two instructions per load, since numba cannot assume that the sum of two uint32
stays below 2^32. Adding a constant to a byte address is free, as it becomes part of the load:

    own = np.uint32(address_of(rows) + np.uint32(4) * lane)           # once
    word = load_word(rows, np.uint32(own + np.uint32(512)))           # LDS word, [own + 0x200]

In numba's simulator the address of an array is 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types

from gpu.card.intrinsics import SIMULATED

if SIMULATED:

    def address_of(array: Any) -> Any:
        """The address of a uint32 array in shared memory, in bytes."""
        return np.uint32(0)

    def load_word(array: Any, address: Any) -> Any:
        """The word of a uint32 array in shared memory at an address in it, 4 | address."""
        assert int(address) % 4 == 0
        return array[int(address) // 4]

    def store_word(array: Any, address: Any, word: Any) -> None:
        """Store a word of a uint32 array in shared memory at an address in it, 4 | address."""
        assert int(address) % 4 == 0
        array[int(address) // 4] = word

else:
    from numba.cuda.extending import intrinsic

    _I32 = ir.IntType(32)
    _SHARED = 3

    @intrinsic
    def address_of(typingctx: Any, array: Any) -> Any:
        """The address of a uint32 array in shared memory, in bytes."""

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            data = context.make_array(signature.args[0])(context, builder, args[0]).data
            inside = builder.addrspacecast(data, ir.PointerType(_I32, addrspace=_SHARED))
            return builder.ptrtoint(inside, _I32)

        return types.uint32(array), codegen

    @intrinsic
    def load_word(typingctx: Any, array: Any, address: Any) -> Any:
        """The word of a uint32 array in shared memory at an address in it, 4 | address."""

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            at = context.cast(builder, args[1], signature.args[1], types.uint32)
            # the side effect keeps the load after the preceding barrier
            load = ir.InlineAsm(
                ir.FunctionType(_I32, [_I32]), "ld.shared.u32 $0, [$1];", "=r,r", side_effect=True
            )
            return builder.call(load, [at])

        return types.uint32(array, address), codegen

    @intrinsic
    def store_word(typingctx: Any, array: Any, address: Any, word: Any) -> Any:
        """Store a word of a uint32 array in shared memory at an address in it, 4 | address."""

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            at, value = (
                context.cast(builder, given, kind, types.uint32)
                for given, kind in zip(args[1:], signature.args[1:], strict=True)
            )
            store = ir.InlineAsm(
                ir.FunctionType(ir.VoidType(), [_I32, _I32]),
                "st.shared.u32 [$0], $1;",
                "r,r",
                side_effect=True,
            )
            builder.call(store, [at, value])
            return context.get_dummy_value()

        return types.void(array, address, word), codegen
