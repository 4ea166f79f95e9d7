"""Ctrl-C: raised as KeyboardInterrupt in kernels, exit code 130 and one line on the command line.

Python raises KeyboardInterrupt between any two bytecode instructions. Where C code calls Python, as
while a module is imported, a kernel is compiled or an object is finalized, the exception may turn
into another one or get lost:

- numba asks Python for the type of each array in a tuple that a kernel returns, and ignores
  failures. The interrupt is then the cause of a SystemError, which may be the cause of another one
  (``interrupts_as_such``).
- On the command line an interrupt during an import ends the process, one that got lost is raised
  again, and whatever ends the program after an interrupt counts as interrupted (``Interrupts``).
- Python sees no interrupt while a kernel runs in the main thread (``interruptible``).

This module is imported first and imports nothing that takes time.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _thread
import atexit
import os
import sys
import time
from contextlib import contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType
    from typing import Any, TypeVar

    import numpy as np
    from numpy.typing import NDArray

    T = TypeVar("T")

_AGAIN_SECONDS = 0.01  # delay before a lost interrupt is raised again

_SAME_SECONDS = 0.5
"""Signals within this time count as one interrupt: ``timeout`` and terminals may send two."""

_BRIEF_CELLS = 3e7  # cells that take about a tenth of a second


def leave(number: int, frame: FrameType | None) -> None:
    """A signal handler that ends the process at once, for when nothing needs to be cleaned up."""
    try:
        os.write(2, b"streamer: error: interrupted\n")
    finally:
        os._exit(128 + number)


def ignore_interrupts() -> None:
    """Ignore SIGINT from now on, so that it cannot change the exit code."""
    _signal.signal(_signal.SIGINT, _signal.SIG_IGN)


def leave_on_interrupt() -> None:
    """Have SIGINT end the process at once, unless it was ignored when the process started."""
    if _signal.getsignal(_signal.SIGINT) in (_signal.default_int_handler, _signal.SIG_DFL):
        _signal.signal(_signal.SIGINT, leave)


class Interrupts:
    """Handles SIGINT while ``run`` runs."""

    def __init__(self) -> None:
        self._seen = False
        self._raises = False
        self._raised = -_SAME_SECONDS
        self._thread = _thread.get_ident()

    def run(self, work: Callable[[], T], interrupted: T) -> T:
        """Return the result of ``work``, or ``interrupted`` after an interrupt.

        An interrupt is raised in ``work`` as KeyboardInterrupt. However ``work`` ends after it,
        with any exception or even a result, it counts as interrupted.
        """
        import threading

        before = _signal.getsignal(_signal.SIGINT)
        ours = before is _signal.default_int_handler or before is leave
        if not ours or threading.current_thread() is not threading.main_thread():
            return work()
        hooks = sys.unraisablehook, threading.excepthook
        try:
            _signal.signal(_signal.SIGINT, self._interrupt)
            sys.unraisablehook = self._quiet(hooks[0])
            threading.excepthook = self._quiet(hooks[1])
            try:
                self._raises = True
                result = work()
            finally:
                self._raises = False
        except BaseException:
            if not self._seen:
                raise
        finally:
            sys.unraisablehook, threading.excepthook = hooks
            _signal.signal(_signal.SIGINT, before)
        return interrupted if self._seen else result

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if not self._raises:
            leave(number, frame)
        self._seen = True
        if time.monotonic() - self._raised < _SAME_SECONDS:
            return
        if _imports(frame):
            # its C code may drop the exception or turn it into another one
            self._raises = False
            atexit._run_exitfuncs()
            leave(number, frame)
        self._raised = time.monotonic()
        raise KeyboardInterrupt

    def _repeat(self) -> None:
        """Raise the interrupt again a little later."""
        self._raised = -_SAME_SECONDS

        def signal() -> None:
            time.sleep(_AGAIN_SECONDS)
            if self._raises:
                _signal.pthread_kill(self._thread, _signal.SIGINT)

        _thread.start_new_thread(signal, ())

    def _quiet(self, hook: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Wrap a hook for uncaught exceptions so that it stays silent after an interrupt."""

        def report(args: Any) -> None:
            if not self._seen:
                hook(args)
            elif issubclass(args.exc_type, KeyboardInterrupt):
                self._repeat()

        return report


def _imports(frame: FrameType | None) -> bool:
    """Whether a module is being imported."""
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def interrupt_in(error: BaseException | None) -> KeyboardInterrupt | None:
    """The interrupt that an error is or was caused by, None if there is none."""
    while isinstance(error, SystemError):
        error = error.__cause__
    return error if isinstance(error, KeyboardInterrupt) else None


@contextmanager
def interrupts_as_such() -> Iterator[None]:
    """Re-raise an interrupt that has become a SystemError; a context manager or decorator."""
    try:
        yield
    except SystemError as error:
        interrupt = interrupt_in(error)
        if interrupt is None:
            raise
        raise interrupt.with_traceback(error.__traceback__) from None


def interruptible(run: Callable[[NDArray[np.uint8]], T], cells: float) -> T:
    """Return run(stop), called in another thread if its ``cells`` cells take long to compute.

    stop: uint8[1]; kernels end once ``load_now(stop)`` (trie/cpu/intrinsics.py) is not 0. An
    interrupt sets ``stop`` and is raised once ``run`` has ended.
    """
    import threading

    import numpy as np

    stop = np.zeros(1, dtype=np.uint8)
    if cells <= _BRIEF_CELLS or threading.current_thread() is not threading.main_thread():
        return run(stop)
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as beside:
        running = beside.submit(run, stop)
        try:
            return running.result()
        except BaseException:
            stop[0] = 1
            raise
