"""How a process that has used several cards ends: without unloading what it has loaded twice.

numba loads a compiled kernel once and uses that library on every card, each with a finalizer that
unloads it. When the interpreter ends and more than ten deallocations are pending, all finalizers
run, the second one of a library on a handle that is gone, and the process crashes after its
work was done. So the pending deallocations are held back from then on: the driver frees everything
anyway when the process ends. Found in numba-cuda 0.30.4 (``_module_finalizer`` in its driver.py).
"""

from __future__ import annotations

import atexit
from collections.abc import Iterable
from contextlib import ExitStack

from gpu.intrinsics import SIMULATED, cuda

_used: set[int] = set()
_held = ExitStack()


def several_used(numbers: Iterable[int]) -> None:
    """Take note of the cards in use, once they are: one card alone needs nothing.

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
        with cuda.gpus[number]:
            _held.enter_context(cuda.defer_cleanup())
