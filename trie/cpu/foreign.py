"""Functions of C libraries, called from kernels, which hold no lock of the interpreter.

An extension module brings a C library along and wraps its functions one call at a time, each with
the interpreter's lock given back and asked for again. Several threads want the lock; one wait for
it takes longer than many of the calls. A kernel makes them all in one step.
"""

from __future__ import annotations

import ctypes
import importlib
from functools import cache
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

_KINDS: dict[str, tuple[Any, Any]] = {
    "int": (types.int32, ir.IntType(32)),
    "unsigned": (types.uint32, ir.IntType(32)),
    "size": (types.int64, ir.IntType(64)),
    "pointer": (types.uint64, ir.IntType(8).as_pointer()),
}


@cache
def address_of(name: str, module: str) -> int:
    """Where a function of the library inside an extension module is, 0 if it cannot be found."""
    try:
        library = ctypes.CDLL(importlib.import_module(module).__file__)
        return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
    except (ImportError, OSError, AttributeError):
        return 0


def foreign(result: str, *arguments: str) -> Any:
    """A function for kernels that calls one of C at an address (uint64), its first argument.

    Kinds are ``int`` (int32), ``unsigned`` (uint32), ``size`` (int64) and ``pointer`` (uint64).
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kinds = [_KINDS[kind][1] for kind in arguments]
        returned = _KINDS[result][1]
        function = builder.inttoptr(args[0], ir.FunctionType(returned, kinds).as_pointer())
        given = [
            builder.inttoptr(value, kind) if isinstance(kind, ir.PointerType) else value
            for value, kind in zip(args[1:], kinds, strict=True)
        ]
        answer = builder.call(function, given)
        return builder.ptrtoint(answer, ir.IntType(64)) if result == "pointer" else answer

    signature = _KINDS[result][0](types.uint64, *(_KINDS[kind][0] for kind in arguments))
    # an intrinsic must name its arguments
    names = ", ".join(f"x{i}" for i in range(len(arguments)))
    scope: dict[str, Any] = {"signature": signature, "codegen": codegen}
    text = f"def typed(typingctx, address, {names}):\n    return signature, codegen\n"
    exec(text, scope)
    return intrinsic(scope["typed"])
