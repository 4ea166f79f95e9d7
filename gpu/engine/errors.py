"""What can go wrong on a card, each with a text of one line."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from gpu.engine.leaving import hold_back_lost


class CudaEngineError(RuntimeError):
    """The engine cannot go on."""


class CardMemoryError(CudaEngineError):
    """``what`` needs ``needed`` bytes on the card, of which ``available`` may be had."""

    def __init__(self, what: str, needed: int, available: int) -> None:
        self.what = what
        self.needed = needed
        self.available = available
        super().__init__(
            f"{what} needs {shown_bytes(needed)} on the card, "
            f"{shown_bytes(max(available, 0))} may be had"
        )


class DeviceLostError(CudaEngineError):
    """A call failed: the card is lost or out of memory, a kernel cannot be made or went wrong."""


def shown_bytes(number: float) -> str:
    """A number of bytes as people read it."""
    for unit in ("bytes", "KiB", "MiB"):
        if number < 1024:
            return f"{number:.4g} {unit}"
        number /= 1024
    return f"{number:.4g} GiB"


@cache
def driver_errors() -> tuple[type[BaseException], ...]:
    """The exceptions by which the CUDA packages say that a call or a compilation failed."""
    found = []
    for module, name in (
        ("numba.cuda.cudadrv.driver", "CudaAPIError"),
        ("numba.cuda.cudadrv.driver", "LinkerError"),
        ("numba.cuda.cudadrv.error", "CudaSupportError"),
        ("numba.cuda.cudadrv.error", "NvvmError"),
        ("cuda.core._utils.cuda_utils", "CUDAError"),
        ("cuda.bindings.nvjitlink", "nvJitLinkError"),
        ("cupy.cuda.runtime", "CUDARuntimeError"),
        ("cupy.cuda.driver", "CUDADriverError"),
        ("cupy.cuda.memory", "OutOfMemoryError"),
    ):
        try:
            found.append(getattr(importlib.import_module(module), name))
        except (ImportError, AttributeError, RuntimeError):
            continue
    return tuple(found)


@contextmanager
def driver_errors_told() -> Iterator[None]:
    """Turn a failed call to the driver into DeviceLostError."""
    try:
        yield
    except driver_errors() as error:
        hold_back_lost()
        message = f"the CUDA device failed: {' '.join(str(error).split())}"
        raise DeviceLostError(message) from error
