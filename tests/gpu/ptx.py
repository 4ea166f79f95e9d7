"""Compiling kernels to PTX, which needs the compiler's libraries but no card."""

from __future__ import annotations

import pytest
from numba import cuda
from numba.cuda import types

CAPABILITIES = [
    pytest.param((8, 0), id="sm_80", marks=pytest.mark.slow),
    pytest.param((9, 0), id="sm_90"),
]

NAMES = {name: getattr(types, name) for name in ("int32", "int64", "uint8", "uint32", "uint64")}
NAMES |= {"uint16": types.uint16, "int16": types.int16, "int8": types.int8}


def argument(name):
    """The numba type of "uint32" or "uint64[::1]"."""
    scalar, _, dimensions = name.partition("[")
    if not dimensions:
        return NAMES[scalar]
    return types.Array(NAMES[scalar], dimensions.count(",") + 1, "C")


def compiled(source, capability):
    """The PTX of a (plain function, names of its argument types)."""
    function, arguments = source
    ptx, _ = cuda.compile_ptx(function, tuple(map(argument, arguments)), cc=capability)
    return ptx
