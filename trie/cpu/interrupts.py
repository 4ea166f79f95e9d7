"""An interrupt that comes while a kernel runs, as the KeyboardInterrupt that it is.

Python sees to an interrupt (Ctrl-C) between two of its own steps, and numba takes such steps at
the end of a kernel: for a tuple of arrays it asks Python for the type of each, and does not look
whether that has failed. The interrupt is then the cause of a SystemError, which may be the cause of
another one. So what is called from outside, where an interrupt is to be told from a fault, is run
within ``interrupts_as_such``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


def interrupt_in(error: BaseException | None) -> KeyboardInterrupt | None:
    """The interrupt that an error is or comes from, None if there is none."""
    while isinstance(error, SystemError):
        error = error.__cause__
    return error if isinstance(error, KeyboardInterrupt) else None


@contextmanager
def interrupts_as_such() -> Iterator[None]:
    """Raises the interrupt where one has become a SystemError; a context or a decorator."""
    try:
        yield
    except SystemError as error:
        interrupt = interrupt_in(error)
        if interrupt is None:
            raise
        raise interrupt.with_traceback(error.__traceback__) from None
