"""Features that numba's CUDA target lacks: vector loads by the read-only path, unsigned words.

numba widens uint32 arithmetic to 64 bits unless every result is cast back, its shuffles take only
signed values, and it has no 16-byte loads. Every function has a second body in plain Python for
numba's simulator, which runs kernels without a device (``NUMBA_ENABLE_CUDASIM=1``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba.cuda
import numpy as np
from llvmlite import ir
from numba.core import config, types

cuda: Any = numba.cuda  # numba's CUDA module, which ships no usable types

# a short chunk leaves most of a GPU idle, which needs no warning
_settings: Any
for _settings in (config, getattr(getattr(numba.cuda, "core", None), "config", None)):
    if _settings is not None:
        _settings.CUDA_LOW_OCCUPANCY_WARNINGS = 0

SIMULATED = bool(getattr(config, "ENABLE_CUDASIM", 0))
ALL_LANES = 0xFFFFFFFF  # the lanes of a warp that take part in a vote or a shuffle


def context_looked_up_once(function: Callable[..., Any]) -> Any:
    """A decorator: look up the current device only once, when the function begins.

    Otherwise numba asks the driver twice for every copy and launch, releasing the GIL each time.
    """
    return function if SIMULATED else cuda.require_context(function)


def device_function(function: Callable[..., Any]) -> Any:
    """A scalar function that kernels call: inlined on the device, plain Python in the simulator."""
    # without inline="always" the helper alone would need a device to compile
    return function if SIMULATED else cuda.jit(device=True, inline="always")(function)


if SIMULATED:

    def load_pair(words: Any, index: Any) -> Any:
        """Words 2 index and 2 index + 1 of a uint64 array in one 16-byte load."""
        return words[2 * int(index)], words[2 * int(index) + 1]

    def load_word(words: Any, index: Any) -> Any:
        """words[index] of a uint32 or uint64 array that no kernel in flight writes."""
        return words[int(index)]

    def population(value: Any) -> Any:
        """The set bits of a uint64, as uint32."""
        return np.uint32(int(value).bit_count())

    def product(value: Any, factor: Any) -> Any:
        """The low 64 bits of a product."""
        return np.uint64(int(value) * int(factor) & 0xFFFFFFFFFFFFFFFF)

    def as_signed(value: Any) -> Any:
        """The same bits as a signed word, as shuffles take it."""
        return value.view(np.int32 if value.dtype == np.uint32 else np.int64)

else:
    from numba.cuda.extending import intrinsic

    _PAIR: Any = types.UniTuple(types.uint64, 2)  # type: ignore[no-untyped-call, unused-ignore]
    _I64 = ir.IntType(64)

    def _address(context: Any, builder: Any, signature: Any, args: Any, shift: int) -> Any:
        array_type, index_type = signature.args
        data = context.make_array(array_type)(context, builder, args[0]).data
        index = context.cast(builder, args[1], index_type, types.uint64)
        return builder.add(builder.ptrtoint(data, _I64), builder.shl(index, _I64(shift)))

    @intrinsic
    def load_pair(typingctx: Any, words: Any, index: Any) -> Any:
        """Words 2 index and 2 index + 1 of a uint64 array in one 16-byte load."""
        signature = _PAIR(words, index)

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            address = _address(context, builder, signature, args, 4)
            pair = ir.LiteralStructType([_I64, _I64])
            load = ir.InlineAsm(
                ir.FunctionType(pair, [_I64]),
                "ld.global.nc.v2.u64 {$0, $1}, [$2];",
                "=l,=l,l",
                side_effect=False,
            )
            both = builder.call(load, [address])
            return context.make_tuple(
                builder,
                signature.return_type,
                [builder.extract_value(both, 0), builder.extract_value(both, 1)],
            )

        return signature, codegen

    @intrinsic
    def load_word(typingctx: Any, words: Any, index: Any) -> Any:
        """words[index] of a uint32 or uint64 array that no kernel in flight writes."""
        signature = words.dtype(words, index)
        bits = words.dtype.bitwidth

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            address = _address(context, builder, signature, args, 3 if bits == 64 else 2)
            load = ir.InlineAsm(
                ir.FunctionType(ir.IntType(bits), [_I64]),
                f"ld.global.nc.u{bits} $0, [$1];",
                "=l,l" if bits == 64 else "=r,l",
                side_effect=False,
            )
            return builder.call(load, [address])

        return signature, codegen

    @device_function
    def population(value: Any) -> Any:
        """The set bits of a uint64, as uint32."""
        return np.uint32(cuda.popc(value))

    @device_function
    def product(value: Any, factor: Any) -> Any:
        """The low 64 bits of a product."""
        return np.uint64(value * factor)

    @intrinsic
    def as_signed(typingctx: Any, value: Any) -> Any:
        """The same bits as a signed word, as shuffles take it."""
        signature = (types.int32 if value.bitwidth == 32 else types.int64)(value)

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return args[0]

        return signature, codegen


def numba_type(name: str) -> Any:
    """The numba type of a name such as "uint32" or "uint64[::1]"."""
    scalar, _, dimensions = name.partition("[")
    found: Any = getattr(types, scalar)
    return types.Array(found, dimensions.count(",") + 1, "C") if dimensions else found


@device_function
def bit_mask_below(position):
    """A uint64 whose bits below ``position`` (0..63) are set."""
    return np.uint64((np.uint64(1) << np.uint64(position)) - np.uint64(1))


@device_function
def sum_to_lane(value, lane):
    """The inclusive sum of a uint32 over the lanes of a warp; all lanes call it."""
    for step in range(5):
        other = np.uint32(cuda.shfl_up_sync(ALL_LANES, as_signed(value), 1 << step))
        if lane >= 1 << step:
            value = np.uint32(value + other)
    return value
