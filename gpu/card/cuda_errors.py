"""GPU errors; each message is one line.

CudaEngineError       a GPU cannot continue
  OutOfMemoryError    out of memory: smaller pieces may fit
    CardMemoryError   known before the allocation, with the sizes
  DeviceLostError     a call or a compilation failed

A process that used several devices or lost one frees nothing more on them at its exit: the driver
does when the process ends. With several devices numba-cuda 0.30.4 unloads a library a second time
there, on an invalid handle, and crashes (``_module_finalizer`` in its driver.py); on a lost device
every deallocation fails in a finalizer, which prints a traceback.
"""

import atexit
import ctypes
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress

from gpu.card.intrinsics import SIMULATED, cuda

_used: set[int] = set()
_deferring = ExitStack()


def note_devices_in_use(numbers: Iterable[int]) -> None:
    """Register devices; call this after their first use: exit handlers run in reverse order."""
    before = len(_used)
    _used.update(numbers)
    if before < 2 <= len(_used) and not SIMULATED:
        atexit.register(defer_deallocations)


def defer_deallocations() -> None:
    """Free nothing more on any device in use."""
    for number in sorted(_used):
        _defer(number)


def defer_deallocations_if_lost() -> None:
    """After a failed call, free nothing more on devices that no longer work."""
    if SIMULATED:
        return
    for number in sorted(_used or {0}):
        try:
            with cuda.gpus[number]:
                cuda.synchronize()
        except Exception:
            with suppress(Exception):
                _defer(number)
                _keep_pool()


def _keep_pool() -> None:
    """Never free CuPy's memory pool, if there is one."""
    cupy = sys.modules.get("cupy")
    if cupy is not None:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(cupy.get_default_memory_pool()))


def _defer(number: int) -> None:
    # this makes no call to the driver, which could fail
    _deferring.enter_context(cuda.gpus[number].get_primary_context().defer_cleanup())


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
    kinds = []
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
            kinds.append(kind)
    return tuple(kinds)


@contextmanager
def translated_driver_errors() -> Iterator[None]:
    """Turn errors of the CUDA packages into OutOfMemoryError or DeviceLostError."""
    try:
        yield
    except driver_errors() as error:
        defer_deallocations_if_lost()
        if _is_shortage(error):
            raise OutOfMemoryError(f"the GPU is out of memory: {_left()}") from error
        raise DeviceLostError(f"the CUDA device failed: {' '.join(str(error).split())}") from error


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
