"""PTX instructions that numba does not offer, as functions that kernels call.

Each consists of its assembly text and plain Python that numba's simulator runs instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import types

from gpu.card.intrinsics import SIMULATED

_KINDS: dict[str, Any] = {
    "u32": ("r", 32, types.uint32),
    "u64": ("l", 64, types.uint64),
    "global": ("l", 64, None),
    "shared": ("r", 32, None),
}
_SHARED = 3


def _address(context: Any, builder: Any, array_type: Any, array: Any, kind: str) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    if kind == "shared":
        data = builder.addrspacecast(data, ir.PointerType(ir.IntType(32), addrspace=_SHARED))
    return builder.ptrtoint(data, ir.IntType(_KINDS[kind][1]))


def instruction(
    assembly: str,
    results: tuple[str, ...],
    arguments: tuple[str, ...],
    simulated: Callable[..., Any],
    *,
    volatile: bool = False,
) -> Any:
    """A function for kernels that runs ``assembly``.

    results, arguments: "u32" or "u64" each, the operands $0, $1, ... in that order; several results
    form a tuple. An argument may also be "global" or "shared": an array whose address (64 or 32
    bits) is passed. A text may have several instructions: results may be written before all
    arguments are read (early clobber). simulated: takes and returns NumPy scalars. volatile: keeps
    unused calls and the order of memory accesses.

    Prefer long texts: numba takes a second for a few hundred casts, but no time for assembly.
    """
    if SIMULATED:
        return simulated
    from numba.cuda.extending import intrinsic

    several = len(results) > 1
    returned: Any = _KINDS[results[0]][2] if results else types.void
    if several:
        returned = types.Tuple([_KINDS[kind][2] for kind in results])  # type: ignore[no-untyped-call, unused-ignore]
    constraints = ",".join(
        [f"=&{_KINDS[kind][0]}" for kind in results]
        + [_KINDS[kind][0] for kind in arguments]
        + ["~{memory}"] * (volatile and not {"global", "shared"}.isdisjoint(arguments))
    )
    words = [ir.IntType(_KINDS[kind][1]) for kind in results]
    returns = ir.LiteralStructType(words) if several else [*words, ir.VoidType()][0]

    def make(*_: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            values = [
                context.cast(builder, value, given, _KINDS[kind][2])
                if _KINDS[kind][2] is not None
                else _address(context, builder, given, value, kind)
                for value, given, kind in zip(args, signature.args, arguments, strict=True)
            ]
            text = ir.InlineAsm(
                ir.FunctionType(returns, [value.type for value in values]),
                assembly,
                constraints,
                side_effect=volatile,
            )
            answer = builder.call(text, values)
            if not results:
                return context.get_dummy_value()
            if not several:
                return answer
            parts = [builder.extract_value(answer, i) for i in range(len(words))]
            return context.make_tuple(builder, signature.return_type, parts)

        return codegen

    # an intrinsic must name its arguments
    names = ", ".join(f"x{i}" for i in range(len(arguments)))
    scope: dict[str, Any] = {"returned": returned, "make": make}
    exec(f"def typed(typingctx, {names}):\n    return returned({names}), make()\n", scope)
    return intrinsic(scope["typed"])
