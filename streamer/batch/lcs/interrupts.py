"""Long kernels that an interrupt ends within a step, not after minutes.

Python tells only the main thread of an interrupt, and only between two of its own steps. So the
kernel runs beside it, and looks at a flag.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, TypeVar

import numpy as np
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

T = TypeVar("T")
Stop = NDArray[np.uint8]
"""uint8[1]: set when kernels are to end."""

BRIEF_CELLS = 3e7
"""Cells that take about a tenth of a second."""

SECONDS = 0.1
"""How long an interrupt may be unseen."""


@intrinsic
def _load_now(typingctx: Any, stop: Any) -> Any:
    """stop[0] as it is in memory now, since another thread writes it."""
    signature = types.uint8(stop)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        return builder.load_atomic(data, "monotonic", 1)

    return signature, generate


asked_to_stop: Any = _load_now
"""For kernels: asked_to_stop(stop) is not 0 once they are to end."""


def interruptible(run: Callable[[Stop], T], cells: float) -> T:
    """run(stop), which computes up to so many cells, beside the main thread if that takes long.

    An interrupt sets the flag and is raised when ``run`` has ended.
    """
    stop = np.zeros(1, dtype=np.uint8)
    if cells <= BRIEF_CELLS or threading.current_thread() is not threading.main_thread():
        return run(stop)
    with ThreadPoolExecutor(1) as beside:
        running = beside.submit(run, stop)
        try:
            # in short waits: where a library has a handler of its own for interrupts, as polars
            # does, they do not end a wait
            while not wait([running], timeout=SECONDS).done:
                pass
            return running.result()
        except BaseException:
            stop[0] = 1
            raise
