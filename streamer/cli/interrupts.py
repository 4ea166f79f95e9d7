"""Ctrl-C on the command line: exit code 130 and one line, whatever it interrupts.

Python raises KeyboardInterrupt between any two of its steps. Where C code calls Python, as while a
module is imported, a kernel is compiled or an object is finalized, the exception may become
another one or get lost. So an interrupt during an import ends the process, one that got lost is
raised again, and whatever ends the program after an interrupt counts as interrupted.

This module is imported before all else and imports nothing that takes time.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _thread
import atexit
import os
import sys
import time

from streamer.errors import EXIT_INTERRUPTED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any, TypeVar

    T = TypeVar("T")

_AGAIN_SECONDS = 0.01
"""How soon an interrupt that got lost is raised again."""

_SAME_SECONDS = 0.5
"""Signals within this time are one interrupt: ``timeout`` and terminals may send two."""


def leave(number: int, frame: FrameType | None) -> None:
    """A handler for when nothing needs to be cleaned up: end the process at once."""
    try:
        os.write(2, b"streamer: error: interrupted\n")
    finally:
        os._exit(EXIT_INTERRUPTED)


def ignore_interrupts() -> None:
    """From now on the exit code is certain."""
    _signal.signal(_signal.SIGINT, _signal.SIG_IGN)


def leave_on_interrupt() -> None:
    """Have SIGINT end the process at once, unless who started it has SIGINT ignored."""
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, leave)


class Interrupts:
    """SIGINT while ``run`` runs."""

    def __init__(self) -> None:
        self._seen = False
        self._raises = False
        self._raised = -_SAME_SECONDS
        self._thread = _thread.get_ident()

    def run(self, work: Callable[[], T], interrupted: T) -> T:
        """What ``work`` returns, or ``interrupted`` after an interrupt.

        An interrupt is raised in ``work`` as KeyboardInterrupt; whatever ends ``work`` after it,
        any exception or even a result, counts as the interrupt.
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
            # its C code may drop the exception, or make another one of it
            self._raises = False
            atexit._run_exitfuncs()
            leave(number, frame)
        self._raised = time.monotonic()
        raise KeyboardInterrupt

    def _repeat(self) -> None:
        """Have the interrupt raised a little later."""
        self._raised = -_SAME_SECONDS

        def signal() -> None:
            time.sleep(_AGAIN_SECONDS)
            if self._raises:
                _signal.pthread_kill(self._thread, _signal.SIGINT)

        _thread.start_new_thread(signal, ())

    def _quiet(self, hook: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """A hook for exceptions that nothing can catch: no noise after an interrupt."""

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
