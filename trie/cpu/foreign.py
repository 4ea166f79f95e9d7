"""C functions called from kernels, without the GIL.

An extension module wraps its C library one call at a time, and releases and takes the GIL for each.
With several threads, one wait for the GIL takes longer than many of the calls. A kernel makes all
the calls without it. Functions inside extension modules are looked up by name.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numpy.typing import NDArray

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


class Borrowed:
    """C functions inside an extension module, which its wheel may not contain.

    They are looked up once per process. Callers take a plain path if any is missing.
    """

    def __init__(self, library: str, module: str, functions: Sequence[str]) -> None:
        self.library = library
        self._module = module
        self._functions = functions

    @cached_property
    def addresses(self) -> NDArray[np.uint64]:
        """uint64[functions]: their addresses, 0 for those missing."""
        return np.array([self._address(name) for name in self._functions], dtype=np.uint64)

    @cached_property
    def missing(self) -> list[str]:
        """The functions that were not found."""
        pairs = zip(self._functions, self.addresses.tolist(), strict=True)
        return [name for name, address in pairs if not address]

    @property
    def choice(self) -> str:
        """Which path was chosen, for reports."""
        return f"plain ({', '.join(self.missing)} missing)" if self.missing else "borrowed"

    def _address(self, name: str) -> int:
        try:
            library = ctypes.CDLL(importlib.import_module(self._module).__file__)
            return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
        except (ImportError, OSError, AttributeError):
            return 0
