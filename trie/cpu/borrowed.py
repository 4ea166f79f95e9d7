"""C functions inside extension modules, looked up by name.

This module does not import numba, so a process without kernels starts quickly.
"""

import ctypes
import importlib
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray


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
