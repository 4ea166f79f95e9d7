"""How a process that has used several cards, or lost one, ends: nothing more is freed there.

numba loads a compiled kernel once and uses that library on every card, each with a finalizer that
unloads it. When the interpreter ends and more than ten deallocations are pending, all finalizers
run, the second one of a library on a handle that is gone, and the process crashes after its
work was done. So the pending deallocations are held back from then on: the driver frees everything
anyway when the process ends. Found in numba-cuda 0.30.4 (``_module_finalizer`` in its driver.py).

On a lost card every deallocation fails, in a finalizer, which prints a traceback each time; so they
are held back there as soon as that is known, and CuPy's pool of memory is kept for good. Two empty
notes of the interpreter's are left at the end of a process that grew a dictionary on it.
"""

from __future__ import annotations

import atexit
import ctypes
import sys
from collections.abc import Iterable
from contextlib import ExitStack, suppress

from gpu.card.intrinsics import SIMULATED, cuda

_used: set[int] = set()
_held = ExitStack()


def several_used(numbers: Iterable[int]) -> None:
    """Take note of the cards in use, once they are: one card alone needs nothing at the end.

    Handlers run in reverse order, so that this one comes before the finalizers of what was made
    earlier.
    """
    before = len(_used)
    _used.update(numbers)
    if before < 2 <= len(_used) and not SIMULATED:
        atexit.register(hold_back)


def hold_back() -> None:
    """Free nothing more on any card in use."""
    for number in sorted(_used):
        _hold_back(number)


def hold_back_lost() -> None:
    """After a call has failed: free nothing more where nothing works any longer."""
    if SIMULATED:
        return
    for number in sorted(_used or {0}):
        try:
            with cuda.gpus[number]:
                cuda.synchronize()
        except Exception:
            with suppress(Exception):
                _hold_back(number)
                _keep_pool()


def _keep_pool() -> None:
    """Let CuPy's memory outlive the interpreter, if there is any."""
    cupy = sys.modules.get("cupy")
    if cupy is not None:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(cupy.get_default_memory_pool()))


def _hold_back(number: int) -> None:
    # the driver is asked nothing, which could fail
    _held.enter_context(cuda.gpus[number].get_primary_context().defer_cleanup())
