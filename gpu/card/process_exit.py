"""Exit of a process that used several devices or lost one: nothing more is freed on them.

numba loads a compiled kernel once and uses that library on every device, each with a finalizer that
unloads it. If more than ten deallocations are pending when the interpreter ends, all finalizers
run, the second one of a library on an invalid handle, and the process crashes after its work. So
pending deallocations are deferred forever: the driver frees everything anyway when the process
ends. Found in numba-cuda 0.30.4 (``_module_finalizer`` in its driver.py).

On a lost device every deallocation fails in a finalizer, which prints a traceback. So they are
deferred as soon as the device is lost, and CuPy's memory pool is never freed. Python still prints
two empty notes at exit if the process grew a dictionary there.
"""

from __future__ import annotations

import atexit
import ctypes
import sys
from collections.abc import Iterable
from contextlib import ExitStack, suppress

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
