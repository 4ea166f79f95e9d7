"""C functions called from kernels, without the GIL.

An extension module wraps its C library one call at a time, and releases and takes the GIL for each.
With several threads, one wait for the GIL takes longer than many of the calls. A kernel makes all
the calls without it.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from trie.cpu.llvm import I8, I32, I64, instruction

_KINDS: dict[str, tuple[Any, Any]] = {
    "int": (types.int32, I32),
    "unsigned": (types.uint32, I32),
    "size": (types.int64, I64),
    "pointer": (types.uint64, I8.as_pointer()),
}


def foreign(result: str, *arguments: str) -> Any:
    """A function for kernels that calls the C function at an address (uint64), its first argument.

    Kinds are ``int`` (int32), ``unsigned`` (uint32), ``size`` (int64) and ``pointer`` (uint64).
    """
    kinds = [_KINDS[kind][1] for kind in arguments]

    @instruction(_KINDS[result][0], types.uint64, *(_KINDS[kind][0] for kind in arguments))
    def called(builder: Any, address: Any, *values: Any) -> Any:
        function = builder.inttoptr(address, ir.FunctionType(_KINDS[result][1], kinds).as_pointer())
        given = [
            builder.inttoptr(value, kind) if kind == _KINDS["pointer"][1] else value
            for value, kind in zip(values, kinds, strict=True)
        ]
        answer = builder.call(function, given)
        return builder.ptrtoint(answer, I64) if result == "pointer" else answer

    return called
