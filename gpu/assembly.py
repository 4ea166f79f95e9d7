"""PTX instructions that numba has no name for, as functions that kernels call.

Each is made from its assembly text and a body in plain Python that numba's simulator runs instead.
Words are uint32 unless said; the results are unsigned, so that nothing is widened behind them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import types

from gpu.intrinsics import SIMULATED

_KINDS = {"u32": ("r", 32, types.uint32), "u64": ("l", 64, types.uint64)}


def instruction(
    assembly: str,
    results: tuple[str, ...],
    arguments: tuple[str, ...],
    simulated: Callable[..., Any],
    *,
    volatile: bool = False,
) -> Any:
    """A function for kernels that runs ``assembly``.

    ``results`` and ``arguments`` are of "u32" and "u64" and are the operands $0, $1, ... in that
    order; several results come back as a tuple. Results are written before all arguments are read
    (early clobber), so several instructions may stand in one text. ``simulated`` takes and gives
    numpy scalars. ``volatile`` keeps a call whose result is not used.
    """
    if SIMULATED:
        return simulated
    from numba.cuda.extending import intrinsic

    several = len(results) > 1
    returned: Any = _KINDS[results[0]][2]
    if several:
        returned = types.Tuple([_KINDS[kind][2] for kind in results])  # type: ignore[no-untyped-call, unused-ignore]
    taken = [_KINDS[kind][2] for kind in arguments]
    constraints = ",".join(
        [f"=&{_KINDS[kind][0]}" for kind in results] + [_KINDS[kind][0] for kind in arguments]
    )
    words = [ir.IntType(_KINDS[kind][1]) for kind in results]
    returns = ir.LiteralStructType(words) if several else words[0]

    def make(*_: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            values = [
                context.cast(builder, value, given, wanted)
                for value, given, wanted in zip(args, signature.args, taken, strict=True)
            ]
            text = ir.InlineAsm(
                ir.FunctionType(returns, [value.type for value in values]),
                assembly,
                constraints,
                side_effect=volatile,
            )
            answer = builder.call(text, values)
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
