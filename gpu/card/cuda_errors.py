"""GPU errors; each message is one line.

CudaEngineError       a GPU cannot continue
  OutOfMemoryError    out of memory: smaller pieces may fit
    CardMemoryError   known before the allocation, with the sizes
  DeviceLostError     a call or a compilation failed
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from gpu.card.intrinsics import cuda
from gpu.card.process_exit import defer_deallocations_if_lost


class CudaEngineError(RuntimeError):
    """A GPU cannot continue."""


class OutOfMemoryError(CudaEngineError):
    """The GPU, or the host for pinned buffers, does not have enough memory."""


class CardMemoryError(OutOfMemoryError):
    """``what`` needs ``needed`` bytes on the GPU, but only ``available`` may be used."""

    def __init__(self, what: str, needed: int, available: int) -> None:
        self.what = what
        self.needed = needed
        self.available = available
        super().__init__(
            f"not enough GPU memory for {what}: {shown_bytes(needed)} needed, "
            f"{shown_bytes(max(available, 0))} available"
        )


class DeviceLostError(CudaEngineError):
    """A call failed: the GPU is lost, or a kernel crashed or cannot be compiled or loaded."""


def shown_bytes(number: float) -> str:
    """A number of bytes in a readable unit."""
    for unit in ("bytes", "KiB", "MiB"):
        if number < 1024:
            return f"{number:.4g} {unit}"
        number /= 1024
    return f"{number:.4g} GiB"


def driver_errors() -> tuple[type[BaseException], ...]:
    """The exceptions that the CUDA packages raise when a call or a compilation fails."""
    found = []
    for module, name in (
        ("numba.cuda.cudadrv.driver", "CudaAPIError"),
        ("numba.cuda.cudadrv.driver", "LinkerError"),
        ("numba.cuda.cudadrv.error", "CudaDriverError"),
        ("numba.cuda.cudadrv.error", "CudaRuntimeError"),
        ("numba.cuda.cudadrv.error", "CudaSupportError"),
        ("numba.cuda.cudadrv.error", "CCSupportError"),
        ("numba.cuda.cudadrv.error", "NvvmError"),
        ("numba.cuda.cudadrv.error", "NvvmSupportError"),
        ("numba.cuda.cudadrv.error", "NvrtcError"),
        ("numba.cuda.cudadrv.error", "NvrtcSupportError"),
        ("cuda.core._utils.cuda_utils", "CUDAError"),
        ("cuda.bindings.nvvm", "nvvmError"),
        ("cuda.bindings.nvjitlink", "nvJitLinkError"),
        ("cuda.pathfinder", "DynamicLibNotFoundError"),
        ("cupy.cuda.runtime", "CUDARuntimeError"),
        ("cupy.cuda.driver", "CUDADriverError"),
        ("cupy.cuda.memory", "OutOfMemoryError"),
    ):
        # a package that is not imported cannot have raised, and importing it may fail here
        kind = getattr(sys.modules.get(module), name, None)
        if isinstance(kind, type) and issubclass(kind, BaseException):
            found.append(kind)
    return tuple(found)


@contextmanager
def translated_driver_errors() -> Iterator[None]:
    """Turn errors of the CUDA packages into OutOfMemoryError or DeviceLostError."""
    try:
        yield
    except driver_errors() as error:
        defer_deallocations_if_lost()
        if _is_shortage(error):
            message = f"the GPU is out of memory: {_left()}"
            raise OutOfMemoryError(message) from error
        message = f"the CUDA device failed: {' '.join(str(error).split())}"
        raise DeviceLostError(message) from error


def _is_shortage(error: BaseException) -> bool:
    # every CUDA package has its own exception class, but all name the driver's error code
    text = f"{type(error).__name__} {error}".upper().replace("_", "")
    return "OUTOFMEMORY" in text


def _left() -> str:
    """The free memory of the current device, for a message."""
    try:
        free, total = cuda.current_context().get_memory_info()
        return f"{shown_bytes(free)} of {shown_bytes(total)} are free"
    except Exception:
        # even the context could not be created
        return "no more is free"
