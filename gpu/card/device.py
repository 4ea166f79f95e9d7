"""Which CUDA devices this process can use."""

import ctypes
import os
import threading
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from functools import cache
from typing import Any


@dataclass(frozen=True, slots=True)
class Device:
    """One CUDA device: its number, name, compute capability and memory in bytes."""

    number: int
    name: str
    capability: tuple[int, int]
    memory_bytes: int


_NONE = "no CUDA driver or no CUDA device"
_ELSEWHERE = ("NUMBA_CUDA_DRIVER", "NUMBA_ENABLE_CUDASIM")
"""Environment variables that select another driver or a simulator."""


def driver_found() -> bool:
    """Whether there may be a CUDA driver, without loading the CUDA packages, which are slow."""
    if any(os.environ.get(name, "0") != "0" for name in _ELSEWHERE):
        return True
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


@cache
def begin_context() -> None:
    """Create the context of the first device on a thread, while modules are imported.

    It takes 0.2 s in the driver. numba then finds it there; a failure shows in its own calls.
    """
    if any(os.environ.get(name, "0") != "0" for name in _ELSEWHERE):
        return

    def create() -> None:
        context = ctypes.c_void_p()
        with suppress(OSError):  # ``devices`` says that there is no driver
            driver = ctypes.CDLL("libcuda.so.1")
            if not driver.cuInit(0):
                driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)

    threading.Thread(target=create, name="context", daemon=True).start()


def devices() -> list[Device]:
    """The usable CUDA devices; raises RuntimeError, with a one-line message, if there is none."""
    if not driver_found():
        raise RuntimeError(_NONE)
    begin_context()
    try:
        from numba import cuda
    except ImportError as error:
        raise RuntimeError(
            f"the CUDA packages are not installed ({error}): pip install '.[gpu]' in a clone"
        ) from None
    try:
        if not cuda.is_available():
            raise RuntimeError(_NONE)
        usable = []
        for number, handle in enumerate(cuda.gpus):
            with handle:
                context = cuda.current_context()
                name = handle.name.decode() if isinstance(handle.name, bytes) else str(handle.name)
                usable.append(
                    Device(
                        number,
                        name,
                        tuple(handle.compute_capability),
                        int(context.get_memory_info().total),
                    )
                )
    except RuntimeError:
        raise
    except Exception as error:
        raise RuntimeError(f"CUDA does not start: {' '.join(str(error).split())}") from None
    return usable


_SIMULATOR = threading.RLock()
"""numba's simulator runs one kernel at a time."""


def card_active(number: int, *, alone: bool = False) -> AbstractContextManager[Any]:
    """Make a device the current one of this thread in a ``with`` block.

    alone: the process uses no other device. By default a thread's current device is the first one.
    """
    from gpu.card.intrinsics import SIMULATED, cuda

    if alone and number == 0:
        return nullcontext()
    return _SIMULATOR if SIMULATED else cuda.gpus[number]


def memory_of(number: int) -> tuple[int, int]:
    """Used and total memory of a device, in bytes; RuntimeError if it does not respond."""
    from numba import cuda

    try:
        with cuda.gpus[number]:
            memory = cuda.current_context().get_memory_info()
            return int(memory.total - memory.free), int(memory.total)
    except Exception as error:
        raise RuntimeError(f"device {number}: {' '.join(str(error).split())}") from None
